package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ah is the application's handle of an address handle.
type ah struct {
	pd *pd
	ah *engine.AH
}

func (p *pd) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	h, err := e.CreateAH(p.pd, a)
	if err != nil {
		return nil, err
	}
	return listed(p.ahs, &ah{pd: p, ah: h}), nil
}

func (a *ah) Handle() uint32 { return a.ah.Handle() }
func (a *ah) Destroy() error { return end(a.pd.ctx, a.pd.ahs, a, a.ah.Destroy) }

// checkAHs refuses address handles of other contexts, whose numbers may name other address handles
// here. It returns the index of the first work request with such a handle, and an error; if there
// is none, len(wrs) and nil.
func (q *qp) checkAHs(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].AH == nil {
			continue
		}
		if a, ok := wrs[i].AH.(*ah); !ok || a == nil || a.pd.ctx != q.pd.ctx {
			return i, &verbs.OpError{Op: "post send", Err: verbs.ErrInvalid, Index: i, Detail: "the address handle was not made by this context"}
		}
	}
	return len(wrs), nil
}

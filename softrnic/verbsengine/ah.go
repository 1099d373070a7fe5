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

// CreateAH resolves an address for datagrams.
func (p *pd) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	h, err := e.CreateAH(p.pd, a)
	if err != nil {
		return nil, err
	}
	handle := &ah{pd: p, ah: h}
	p.ahs[handle] = struct{}{}
	return handle, nil
}

// Handle returns the NIC's number of the address handle.
func (a *ah) Handle() uint32 { return a.ah.Handle() }

// Destroy ends the handle.
func (a *ah) Destroy() error {
	a.pd.ctx.shell.Enter()
	defer a.pd.ctx.shell.Leave()
	if err := a.ah.Destroy(); err != nil {
		return err
	}
	delete(a.pd.ahs, a)
	return nil
}

// checkAHs refuses address handles of other contexts: their numbers may name other address handles
// here. It returns the number of work requests before the first refused one.
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

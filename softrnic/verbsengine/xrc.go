package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// xrcd is the application's handle of an XRC domain.
type xrcd struct {
	x *engine.XRCD
	// targets has the handles of the domain's queue pairs. It is no protection domain of the NIC: a target has
	// none.
	targets *pd
}

var _ verbs.XRCContext = (*Context)(nil)

// AllocXRCD makes an XRC domain.
func (c *Context) AllocXRCD() (verbs.XRCD, error) {
	_, e, _ := c.shell.Enter()
	defer c.shell.Leave()
	if err := c.open("alloc XRCD"); err != nil {
		return nil, err
	}
	x := new(engine.XRCD)
	if err := x.Alloc(e); err != nil {
		return nil, err
	}
	return listed(c.xrcds, &xrcd{x: x, targets: newPD(c, nil)}), nil
}

func (x *xrcd) CreateTarget(init verbs.QPInit) (verbs.QP, error) {
	c := x.targets.ctx
	c.shell.Enter()
	defer c.shell.Leave()
	q, err := x.x.CreateTarget(init)
	if err != nil {
		return nil, err
	}
	q.SetOwner(c.owner)
	return listed(x.targets.qps, &qp{pd: x.targets, qp: q}), nil
}

func (x *xrcd) Dealloc() error { return end(x.targets.ctx, x.targets.ctx.xrcds, x, x.x.Dealloc) }

// createXRCSRQ makes a shared receive queue in an XRC domain.
func (p *pd) createXRCSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	const op = "create SRQ"
	x, ok := init.XRCD.(*xrcd)
	if !ok || x == nil || x.targets.ctx != p.ctx {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "the XRC domain was not made by this context"}
	}
	c, err := p.cq(op, "XRC", init.CQ)
	if err != nil {
		return nil, err
	}
	p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	s, err := x.x.CreateXRCSRQ(p.pd, c, init)
	if err != nil {
		return nil, err
	}
	s.SetOwner(p.ctx.owner)
	return listed(p.srqs, &srq{pd: p, srq: s}), nil
}

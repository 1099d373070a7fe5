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
	// borrowed: the domain belongs to another context.
	borrowed bool
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
	return listed(c.xrcds, &xrcd{x: x, targets: c.newPD(nil)}), nil
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

func (x *xrcd) Dealloc() error {
	c := x.targets.ctx
	if x.borrowed {
		return end(c, c.xrcds, x, x.giveBack)
	}
	return end(c, c.xrcds, x, x.x.Dealloc)
}

// ShareXRCD returns a handle, for use in c, of an XRC domain that belongs to another context of the same NIC.
// Targets and shared receive queues made through the handle belong to c and end with it; the domain does not.
// Dealloc ends only the handle.
func (c *Context) ShareXRCD(other verbs.XRCD) (verbs.XRCD, error) {
	const op = "share XRCD"
	o, ok := other.(*xrcd)
	if !ok || o == nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "no XRC domain of a NIC of this process"}
	}
	c.shell.Enter()
	defer c.shell.Leave()
	if err := c.open(op); err != nil {
		return nil, err
	}
	return listed(c.xrcds, &xrcd{x: o.x, targets: c.newPD(nil), borrowed: true}), nil
}

// giveBack ends a handle that ShareXRCD has made. The caller has exclusive use of the engine.
func (x *xrcd) giveBack() error {
	c := x.targets.ctx
	if err := c.open("dealloc XRCD"); err != nil {
		return err
	}
	if x.x.Ended() {
		return nil
	}
	n := len(x.targets.qps)
	for p := range c.pds {
		for s := range p.srqs {
			if s.xrcd == x {
				n++
			}
		}
	}
	if n > 0 {
		return &verbs.OpError{Op: "dealloc XRCD", Err: verbs.ErrBusy, Detail: "destroy what was made through this handle first"}
	}
	return nil
}

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
	return listed(p.srqs, &srq{pd: p, srq: s, xrcd: x}), nil
}

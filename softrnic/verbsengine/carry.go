package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// This file is mostly for package ipc/serve, which offers the verbs to other processes. That package
// makes objects through a Context: the Context checks their handles, and destroys the objects when the
// Context is closed. But ipc/serve posts and polls on the engine itself, for many queues in one step.

// Driver is a Shell with a method for a loop that serves many queues and makes its own pauses.
// Drive does the work of Progress without a pause, and reports whether there was any work. It is
// called between Enter and Leave.
type Driver interface{ Drive() bool }

// Shell returns the shell of the context: the code that gives exclusive use of the engine.
func (c *Context) Shell() Shell { return c.shell }

// EngineQP returns the queue pair behind a handle of this package; nil if q is not one.
func EngineQP(q verbs.QP) *engine.QP {
	if handle, ok := q.(*qp); ok && handle != nil {
		return handle.qp
	}
	return nil
}

// EngineCQ returns the completion queue behind a handle of this package; nil if c is not one.
func EngineCQ(c verbs.CQ) *engine.CQ {
	if handle, ok := c.(*cq); ok && handle != nil {
		return handle.cq
	}
	return nil
}

// EngineSRQ returns the shared receive queue behind a handle of this package; nil if s is not one.
func EngineSRQ(s verbs.SRQ) *engine.SRQ {
	if handle, ok := s.(*srq); ok && handle != nil {
		return handle.srq
	}
	return nil
}

// EngineMR returns the region behind a handle of this package; nil if m is not one.
func EngineMR(m verbs.MR) *engine.MR {
	if handle, ok := m.(*mr); ok && handle != nil {
		return handle.mr
	}
	return nil
}

// MakeType1 turns a window of this package that was just allocated into one of type 1, which the
// peers of all queue pairs of its protection domain may use; see mem.Window.
func MakeType1(w verbs.MW) {
	if handle, ok := w.(*mw); ok && handle != nil {
		handle.pd.ctx.shell.Enter()
		defer handle.pd.ctx.shell.Leave()
		handle.mw.MakeType1()
	}
}

// RegFarMR registers memory of the program for which the context of domain is open; see
// engine.PD.RegFarMR.
func RegFarMR(domain verbs.PD, far mem.Far, start, base, length uint64, access verbs.Access) (verbs.MR, error) {
	p, ok := domain.(*pd)
	if !ok || p == nil {
		return nil, &verbs.OpError{Op: "reg MR", Err: verbs.ErrInvalid, Detail: "no protection domain of a NIC of this process"}
	}
	p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	return p.addMR(p.pd.RegFarMR(far, start, base, length, access))
}

// SharePD returns a handle, for use in c, of a protection domain that belongs to another context of
// the same NIC. Objects made through the handle belong to c and end with it; the domain and its
// other objects do not. Dealloc ends only the handle.
func (c *Context) SharePD(other verbs.PD) (verbs.PD, error) {
	const op = "share PD"
	o, ok := other.(*pd)
	if !ok || o == nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "no protection domain of a NIC of this process"}
	}
	c.shell.Enter()
	defer c.shell.Leave()
	if err := c.open(op); err != nil {
		return nil, err
	}
	handle := c.newPD(o.pd)
	handle.borrowed = true
	return listed(c.pds, handle), nil
}

func (c *Context) newPD(p *engine.PD) *pd {
	return &pd{
		ctx: c, pd: p, mrs: make(map[*mr]struct{}), qps: make(map[*qp]struct{}), ahs: make(map[*ah]struct{}),
		srqs: make(map[*srq]struct{}), mws: make(map[*mw]struct{}),
	}
}

// giveBack ends a handle that SharePD has made of a domain of another context. The caller has
// exclusive use of the engine.
func (p *pd) giveBack() error {
	if n := len(p.mrs) + len(p.qps) + len(p.ahs) + len(p.srqs) + len(p.mws); n > 0 {
		return &verbs.OpError{Op: "dealloc PD", Err: verbs.ErrBusy, Detail: "destroy what was made through this handle first"}
	}
	delete(p.ctx.pds, p)
	return nil
}

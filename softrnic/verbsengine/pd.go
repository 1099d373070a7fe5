package verbsengine

import (
	"fmt"
	"math"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pd is the application's handle of a protection domain.
type pd struct {
	ctx  *Context
	pd   *engine.PD
	mrs  map[*mr]struct{}
	qps  map[*qp]struct{}
	ahs  map[*ah]struct{}
	srqs map[*srq]struct{}
	mws  map[*mw]struct{}
	// borrowed: the domain belongs to another context.
	borrowed bool
}

// maxAlloc is the largest number of bytes that RegMR allocates.
const maxAlloc = 1 << 36

func (p *pd) RegMR(buf []byte, length int, access verbs.Access) (verbs.MR, error) {
	buf, err := memoryFor("reg MR", buf, length)
	if err != nil {
		return nil, err
	}
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	return p.addMR(e.RegMR(p.pd, buf, access))
}

func (p *pd) AllocFastMR(buf []byte, length int) (verbs.MR, error) {
	buf, err := memoryFor("alloc fast MR", buf, length)
	if err != nil {
		return nil, err
	}
	p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	return p.addMR(p.pd.AllocFastMR(buf))
}

// memoryFor returns buf, or length new bytes if buf is nil. It is called before Enter, because
// clearing much memory takes long.
func memoryFor(op string, buf []byte, length int) ([]byte, error) {
	switch {
	case buf == nil && (length <= 0 || length > maxAlloc):
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("length %d; give 1 to %d bytes", length, maxAlloc)}
	case buf == nil:
		return make([]byte, length), nil
	case length != 0 && length != len(buf):
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("length %d of a buffer of %d bytes", length, len(buf))}
	}
	return buf, nil
}

// addMR makes the handle of a new region. err is the error of the registration.
func (p *pd) addMR(m *engine.MR, err error) (verbs.MR, error) {
	if err != nil {
		return nil, err
	}
	m.SetOwner(p.ctx.owner)
	region, err := m.Region()
	if err != nil {
		return nil, err
	}
	handle := &mr{pd: p, mr: m, addr: region.Base(), length: region.Len(), lkey: region.LKey(), rkey: region.RKey()}
	return listed(p.mrs, handle), nil
}

func (p *pd) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	const op = "create QP"
	if init.Type == verbs.XRCInitiator && init.RecvCQ == nil {
		init.RecvCQ = init.SendCQ // it has no receives
	}
	send, err := p.cq(op, "send", init.SendCQ)
	if err != nil {
		return nil, err
	}
	recv, err := p.cq(op, "receive", init.RecvCQ)
	if err != nil {
		return nil, err
	}
	shared, err := p.srq(op, init.SRQ)
	if err != nil {
		return nil, err
	}
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	q, err := e.CreateQPOn(p.pd, send, recv, shared, init)
	if err != nil {
		return nil, err
	}
	q.SetOwner(p.ctx.owner)
	return listed(p.qps, &qp{pd: p, qp: q}), nil
}

// cq checks that a completion queue belongs to the same context.
func (p *pd) cq(op, which string, c verbs.CQ) (*engine.CQ, error) {
	handle, ok := c.(*cq)
	if !ok || handle == nil || handle.ctx != p.ctx {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "the " + which + " CQ was not made by this context"}
	}
	return handle.cq, nil
}

func (p *pd) Dealloc() error {
	p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	if p.borrowed {
		return p.giveBack()
	}
	if err := p.pd.Dealloc(); err != nil {
		return err
	}
	delete(p.ctx.pds, p)
	return nil
}

// mr is the application's handle of a region.
type mr struct {
	pd         *pd
	mr         *engine.MR
	addr       uint64
	length     int
	lkey, rkey uint32
}

func (m *mr) Addr() uint64 { return m.addr }
func (m *mr) Len() int     { return m.length }
func (m *mr) LKey() uint32 { return m.lkey }
func (m *mr) RKey() uint32 { return m.rkey }

// SGE returns an SGE of n bytes from `off` on. It checks nothing: an invalid SGE fails where it is
// used. A length that does not fit into the SGE becomes the largest one, which every post refuses.
// If it were truncated, a post could accept it.
func (m *mr) SGE(off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.addr + uint64(off), Length: uint32(min(uint64(n), math.MaxUint32)), LKey: m.lkey}
}

// maxCopy is the largest number of bytes copied in one step; during a step the NIC does nothing
// else.
const maxCopy = 1 << 20

// ReadAt copies bytes out of the region. The NIC makes no access while a piece of maxCopy bytes is
// copied.
func (m *mr) ReadAt(b []byte, off int) error { return m.copy(b, off, (*mem.Region).ReadAt) }

// WriteAt copies bytes into the region, in pieces of maxCopy bytes like ReadAt.
func (m *mr) WriteAt(b []byte, off int) error { return m.copy(b, off, (*mem.Region).WriteAt) }

func (m *mr) copy(b []byte, off int, step func(*mem.Region, []byte, int) error) error {
	if off < 0 || len(b) > m.length-off {
		return m.with(func(r *mem.Region) error { return step(r, b, off) }) // step fails and copies nothing
	}
	for {
		n := min(len(b), maxCopy)
		if err := m.with(func(r *mem.Region) error { return step(r, b[:n], off) }); err != nil || n == len(b) {
			return err
		}
		b, off = b[n:], off+n
	}
}

func (m *mr) Load64(off int) (v uint64, err error) {
	err = m.with(func(r *mem.Region) error { v, err = r.Load64(off); return err })
	return v, err
}

func (m *mr) Store64(off int, v uint64) error {
	return m.with(func(r *mem.Region) error { return r.Store64(off, v) })
}

func (m *mr) with(f func(*mem.Region) error) error {
	m.pd.ctx.shell.Enter()
	defer m.pd.ctx.shell.Leave()
	r, err := m.mr.Region()
	if err != nil {
		return err
	}
	return f(r)
}

func (m *mr) Rereg(access verbs.Access) error {
	return m.pd.ctx.step(func(step) error { return m.mr.Rereg(access) })
}

func (m *mr) Dereg() error { return end(m.pd.ctx, m.pd.mrs, m, m.mr.Dereg) }

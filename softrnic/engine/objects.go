package engine

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

type PD struct {
	e    *Engine
	num  mem.PD
	qps  int // number of queue pairs in the domain
	ahs  int // number of address handles in the domain
	srqs int // number of SRQs in the domain
	dead bool

	owner *Owner
}

type MR struct {
	e      *Engine
	region *mem.Region
	dm     *DM // the device memory of the region, or nil
	owner  *Owner
	dead   bool
}

type CQ struct {
	e      *Engine
	q      *cq.CQ
	refs   int // number of queue pairs that use it; one that uses it for sends and receives counts twice
	dead   bool
	place  uint32 // index in Engine.moderated
	owner  *Owner
	sharer *QP // a queue pair that uses this queue, remembered by ringHost.shares
	// failed is set when the overflow of the queue was reported, which happens once. overflowed is
	// set while the queue is in Engine.overflowed.
	failed, overflowed bool
}

// alive returns an error for the operation op if the object on which it is called is dead;
// otherwise it returns nil.
func alive(op string, dead bool) error {
	if dead {
		return &verbs.OpError{Op: op, Err: verbs.ErrClosed, Detail: "the object was destroyed, or its NIC went down"}
	}
	return nil
}

func (e *Engine) AllocPD() (*PD, error) {
	const op = "alloc PD"
	if err := e.Tables.running(op); err != nil {
		return nil, err
	}
	if len(e.Tables.pds) >= e.cfg.Limits.PDs {
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d protection domains exist", len(e.Tables.pds))
	}
	num, err := e.Tables.env.Mem.AllocPD()
	if err != nil {
		return nil, err
	}
	pd := &PD{e: e, num: num}
	e.Tables.pds[num] = pd
	return pd, nil
}

// Dealloc ends the domain. It fails with ErrBusy while the domain has regions, windows, queue
// pairs, shared receive queues or address handles.
func (p *PD) Dealloc() error {
	const op = "dealloc PD"
	if err := alive(op, p.dead); err != nil {
		return err
	}
	if p.qps > 0 || p.srqs > 0 || p.ahs > 0 {
		return verbs.Errorf(op, verbs.ErrBusy, "destroy its %d queue pairs, %d shared receive queues and %d address handles first", p.qps, p.srqs, p.ahs)
	}
	if err := p.e.Tables.env.Mem.DeallocPD(p.num); err != nil {
		return err
	}
	p.dead = true
	delete(p.e.Tables.pds, p.num)
	return nil
}

// RegMR registers buf. The caller must keep buf allocated until Dereg.
func (e *Engine) RegMR(pd *PD, buf []byte, access verbs.Access) (*MR, error) {
	if err := alive("reg MR", pd.dead); err != nil {
		return nil, err
	}
	return pd.newMR(e.Tables.env.Mem.Reg(pd.num, buf, access))
}

// newMR makes the MR of a region that was just registered in the domain. err is the error of the
// registration.
func (p *PD) newMR(region *mem.Region, err error) (*MR, error) {
	if err != nil {
		return nil, err
	}
	mr := &MR{e: p.e, region: region}
	p.e.Tables.mrs[mr] = struct{}{}
	return mr, nil
}

// RegFarMR registers memory of another process, which `far` reads and writes: `length` bytes, which
// begin at address `start` of that process. Peers and work requests name these bytes by addresses
// that begin at `base`.
func (p *PD) RegFarMR(far mem.Far, start, base, length uint64, access verbs.Access) (*MR, error) {
	if err := alive("reg MR", p.dead); err != nil {
		return nil, err
	}
	return p.newMR(p.e.Tables.env.Mem.RegFar(p.num, far, start, base, length, access))
}

// AllocFastMR makes a region for fast registration. Its keys give no access until a work request
// registers memory with it. As with RegMR, the caller must keep buf allocated until Dereg.
func (p *PD) AllocFastMR(buf []byte) (*MR, error) {
	if err := alive("alloc fast MR", p.dead); err != nil {
		return nil, err
	}
	return p.newMR(p.e.Tables.env.Mem.AllocFast(p.num, buf))
}

// Region returns the region as package mem has it, with access to its memory. It fails with
// ErrClosed if the region is deregistered.
func (m *MR) Region() (*mem.Region, error) {
	if err := alive("access MR", m.dead); err != nil {
		return nil, err
	}
	return m.region, nil
}

// Dereg ends the region. Its keys are invalid when Dereg returns. It fails with ErrBusy while
// memory windows are bound to the region.
func (m *MR) Dereg() error {
	if err := alive("dereg MR", m.dead); err != nil {
		return err
	}
	if err := m.e.Tables.env.Mem.Dereg(m.region); err != nil {
		return err
	}
	m.dead = true
	if m.dm != nil {
		m.dm.refs--
	}
	delete(m.e.Tables.mrs, m)
	return nil
}

func (m *MR) Rereg(access verbs.Access) error {
	if err := alive("rereg MR", m.dead); err != nil {
		return err
	}
	return m.e.Tables.env.Mem.Rereg(m.region, access)
}

// UnbindWindows unbinds the memory windows that are bound to the region, also those of other
// applications. It is called when the application that registered the region has ended.
func (m *MR) UnbindWindows() {
	if !m.dead {
		m.e.Tables.env.Mem.UnbindFrom(m.region)
	}
}

// CreateCQ makes a completion queue with room for depth entries.
func (e *Engine) CreateCQ(depth int) (*CQ, error) {
	const op = "create CQ"
	if err := e.Tables.running(op); err != nil {
		return nil, err
	}
	if depth > e.cfg.Limits.CQE {
		return nil, verbs.Errorf(op, verbs.ErrLimit, "depth %d; at most %d", depth, e.cfg.Limits.CQE)
	}
	q, err := cq.New(depth)
	if err != nil {
		return nil, err
	}
	return e.AddCQ(q)
}

// AddCQ makes a completion queue of q, which the caller has allocated: the allocation of a large
// queue takes long, and the engine must not wait for it.
func (e *Engine) AddCQ(q *cq.CQ) (*CQ, error) {
	const op = "create CQ"
	if err := e.Tables.running(op); err != nil {
		return nil, err
	}
	if len(e.Tables.cqs) >= e.cfg.Limits.CQs {
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d completion queues exist", len(e.Tables.cqs))
	}
	for e.Tables.nextCQ++; e.Tables.cqs[e.Tables.nextCQ] != nil || e.Tables.nextCQ == 0; e.Tables.nextCQ++ { // ends, because there are fewer queues than numbers
	}
	q.SetID(e.Tables.nextCQ)
	c := &CQ{e: e, q: q}
	c.place = e.moderated.add(c)
	e.Tables.cqs[q.ID()] = c
	return c, nil
}

// Queue returns the queue that holds the completions. It fails with ErrClosed if the CQ is
// destroyed.
func (c *CQ) Queue() (*cq.CQ, error) {
	if c.dead {
		return nil, alive("use CQ", true)
	}
	return c.q, nil
}

// Resize changes the capacity of the queue to that of q, which the caller has allocated for this
// purpose, as for AddCQ.
func (c *CQ) Resize(q *cq.CQ) error {
	const op = "resize CQ"
	if err := alive(op, c.dead); err != nil {
		return err
	}
	if most := c.e.cfg.Limits.CQE; q.Cap() > most {
		return verbs.Errorf(op, verbs.ErrLimit, "depth %d; at most %d", q.Cap(), most)
	}
	return c.q.Resize(q)
}

// Moderate delays the events of the queue; see cq.CQ.Moderate.
func (c *CQ) Moderate(count int, period time.Duration) error {
	if err := alive("moderate CQ", c.dead); err != nil {
		return err
	}
	if err := c.q.Moderate(count, period); err != nil {
		return err
	}
	c.e.moderated.due.Set(c.place, c.q.Deadline())
	c.e.Events.activity++
	return nil
}

// moderated has the completion queues, with the deadlines of their delayed events.
type moderated struct{ agenda[CQ] }

// tick raises the delayed events that are due.
func (m *moderated) tick(now clock.Time, ev *events) {
	for {
		place, at := m.due.Next()
		if at > now {
			return
		}
		m.due.Remove(place)
		m.places[place].q.Tick(now)
		ev.activity++
	}
}

// ID returns the queue's number in asynchronous events.
func (c *CQ) ID() uint32 { return c.q.ID() }

// Destroy ends the queue. It fails with ErrBusy while queue pairs use it.
func (c *CQ) Destroy() error {
	const op = "destroy CQ"
	if err := alive(op, c.dead); err != nil {
		return err
	}
	if c.refs > 0 {
		return verbs.Errorf(op, verbs.ErrBusy, "destroy the queue pairs that use it first")
	}
	c.dead = true
	c.e.Events.activity++
	c.e.moderated.remove(c.place)
	delete(c.e.Tables.cqs, c.q.ID())
	return nil
}

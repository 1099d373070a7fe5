package engine

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// XRCD is a domain of extended reliable connections (see verbs.XRCD). Alloc makes one.
type XRCD struct {
	e    *Engine
	dead bool
	// targets and srqs count its queue pairs and shared receive queues. found is the queue that the last
	// request to a target of the domain has named.
	targets, srqs int
	found         *SRQ
}

var _ transport.XRCDomain = (*XRCD)(nil)

// Alloc makes x, a zero value, a domain of a NIC. There may be as many as protection domains.
func (x *XRCD) Alloc(e *Engine) error {
	const op = "alloc XRCD"
	if err := e.Tables.running(op); err != nil {
		return err
	}
	if most := e.cfg.Limits.PDs; len(e.Tables.xrcds) >= most {
		return verbs.Errorf(op, verbs.ErrLimit, "%d XRC domains exist", most)
	}
	x.e = e
	e.Tables.xrcds[x] = struct{}{}
	return nil
}

// Dealloc ends the domain. It fails with ErrBusy while it has targets or shared receive queues.
func (x *XRCD) Dealloc() error {
	const op = "dealloc XRCD"
	if err := alive(op, x.dead); err != nil {
		return err
	}
	if x.targets > 0 || x.srqs > 0 {
		return verbs.Errorf(op, verbs.ErrBusy, "destroy its %d targets and %d shared receive queues first", x.targets, x.srqs)
	}
	x.dead = true
	delete(x.e.Tables.xrcds, x)
	return nil
}

// Ended reports whether the domain has ended, by Dealloc or with its NIC.
func (x *XRCD) Ended() bool { return x.dead }

// Find returns the queue that a request to a target of the domain names; see transport.XRCDomain.
func (x *XRCD) Find(n uint32) (srq *transport.SRQ, inside bool) {
	s := x.e.Tables.srqs[n]
	if s == nil || s.xrcd == nil {
		return nil, false
	}
	if s.xrcd == x {
		x.found = s
	}
	return s.s, s.xrcd == x
}

// CreateTarget makes a queue pair of type XRCTarget in RESET.
func (x *XRCD) CreateTarget(init verbs.QPInit) (*QP, error) {
	const op = "create QP"
	if err := alive(op, x.dead); err != nil {
		return nil, err
	}
	if init.Type != verbs.XRCTarget {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "type %v; a queue pair of an XRC domain is a target", init.Type)
	}
	qp := &QP{e: x.e, xrcd: x}
	if err := qp.create(transport.Config{Type: verbs.XRCTarget, XRC: x}); err != nil {
		return nil, err
	}
	x.targets++
	return qp, nil
}

// drop removes the completions of target n from the completion queues of the domain's shared receive queues.
func (x *XRCD) drop(n wire.QPN) {
	done := map[*CQ]bool{} // many queues may share one
	for _, s := range x.e.Tables.srqs {
		if s.xrcd == x && !done[s.cq] {
			done[s.cq] = true
			s.cq.q.Drop(n)
		}
	}
}

// CreateXRCSRQ makes a shared receive queue that requests of XRC name; c gets its completions.
func (x *XRCD) CreateXRCSRQ(pd *PD, c *CQ, init verbs.SRQInit) (*SRQ, error) {
	return pd.createSRQ(x, c, init)
}

// taking returns the shared receive queue from which the queue pair has taken its last receive, or nil.
func (q *QP) taking() *SRQ {
	if q.xrcd != nil {
		return q.xrcd.found
	}
	return q.srq
}

// breakSRQs makes the XRC shared receive queues fail whose completion queue has overrun, in
// the order of their numbers.
func (c *CQ) breakSRQs() {
	var of []uint32
	for n, s := range c.e.Tables.srqs {
		if s.cq == c {
			of = append(of, n)
		}
	}
	slices.Sort(of)
	for _, n := range of {
		c.e.Tables.srqs[n].s.Break()
		c.e.raise(verbs.AsyncEvent{Kind: verbs.EventSRQErr, SRQ: n})
	}
}

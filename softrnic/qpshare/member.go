package qpshare

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Member is what one thread uses as its device. It has one completion queue.
type Member struct {
	// Context is the device itself, for the methods that Member does not replace.
	verbs.Context
	hub  *Hub
	gate verbs.Gate
	cq   cq
	// waiting: the thread waits at gate for completions.
	waiting bool
	pending int            // number of work requests in flight
	wrs     []verbs.SendWR // the work requests of one post, with the IDs of the hub
}

var (
	_ verbs.Context = (*Member)(nil)
	_ rdmacm.Dialer = (*Member)(nil)
)

// AllocPD returns the hub's protection domain.
func (m *Member) AllocPD() (verbs.PD, error) { return &pd{m.hub.pd, m}, nil }

// CreateCQ returns the member's only completion queue. It ignores the depth.
func (m *Member) CreateCQ(int) (verbs.CQ, error) { return &m.cq, nil }

// Close removes the member from the hub. Its queue pairs must have been destroyed.
func (m *Member) Close() error {
	m.hub.leave(m)
	return nil
}

// pd is the hub's protection domain for a member.
type pd struct {
	verbs.PD
	m *Member
}

// CreateQP makes a queue pair. Dial decides whether it uses a shared connection or belongs to the
// member alone.
func (p *pd) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	if init.Type != verbs.RC || init.SRQ != nil {
		return nil, &verbs.OpError{Op: "create QP", Err: verbs.ErrNotSupported, Detail: "members of a hub have reliable connections without shared receive queue"}
	}
	return &qp{member: p.m, init: init}, nil
}

// Dealloc does nothing: the domain belongs to the hub.
func (p *pd) Dealloc() error { return nil }

// Dial connects a queue pair of the member. For a shared service, and without private data, it uses
// the connection of the other members, if there is one.
func (m *Member) Dial(v verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	q, ok := v.(*qp)
	switch {
	case !ok || q.member != m:
		return nil, &verbs.OpError{Op: "dial", Err: verbs.ErrInvalid, Detail: "the queue pair is another member's"}
	case q.real != nil || q.conn != nil:
		return nil, &verbs.OpError{Op: "dial", Err: verbs.ErrState, Detail: "the queue pair has been connected before"}
	case slices.Contains(m.hub.cfg.Shared, service) && len(private) == 0:
		return m.hub.attach(q, place{to, service}, p, deadline)
	}
	return m.dialOwn(q, to, service, p, private, deadline)
}

// dialOwn connects a queue pair that is not shared.
func (m *Member) dialOwn(q *qp, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	h := m.hub
	init := q.init
	init.SendCQ, init.RecvCQ = h.cq, h.cq
	init.MaxSendWR, init.MaxRecvWR = min(max(init.MaxSendWR, 1), h.cfg.Depth), min(max(init.MaxRecvWR, 1), h.cfg.Depth)
	real, err := h.pd.CreateQP(init)
	if err != nil {
		return nil, err
	}
	got, err := h.cfg.Manager.Dial(real, to, service, p, private, deadline)
	if err != nil {
		return nil, errors.Join(err, real.Destroy())
	}
	h.mu.Lock()
	q.real = real
	h.private[real.QPN()] = q
	h.mu.Unlock()
	return got, nil
}

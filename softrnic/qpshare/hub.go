package qpshare

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Config describes a Hub.
type Config struct {
	Context verbs.Context
	// Manager connects queue pairs.
	Manager rdmacm.Dialer
	// Members is the largest number of members; each thread has one.
	Members int
	// Depth is the largest number of work requests in flight of each member; 0 means 32.
	Depth int
	// Shared are the services whose connections are shared. The private data of a service's answer
	// must be the same for all members. A Dial with private data of its own is not shared.
	Shared []string
}

const defaultDepth = 32

// Hub has the connections and the completion queue that the members share. Its methods are safe for
// concurrent use.
type Hub struct {
	cfg Config
	pd  verbs.PD
	cq  verbs.CQ
	wcs [64]verbs.WC // completions that the leader has just polled

	mu sync.Mutex // guards the fields below, and those of members, queue pairs and connections; never held during a verb
	// leader is the member that polls for all members; nil means that none polls.
	leader  *Member
	members []*Member
	// conns has the connections to which queue pairs can attach. all has every connection that was
	// made and not destroyed.
	conns map[place]*conn
	all   []*conn
	// private has the queue pairs that are not shared, by number.
	private map[wire.QPN]*qp
	slots   []slot   // the work requests of all members, by the slot index in their IDs
	free    []uint64 // indexes of free slots
	// err is the failure after which there are no further completions; nil means none.
	err    error
	closed bool
}

// place is a service of a host: members share the connection to it.
type place struct {
	to      netip.Addr
	service string
}

// slot has the data of a work request in flight, or is free. The ID of the posted work request
// contains the slot's index and use; see sendID.
type slot struct {
	use uint64 // how many work requests have had this slot
	q   *qp    // the queue pair that has posted the work request; nil means that it was destroyed
	// c is the shared connection of q; nil if q is not shared.
	c        *conn
	m        *Member
	id       uint64 // the ID that the member has given the work request
	signaled bool   // the member requests a completion
	used     bool   // the slot is not free
}

// New returns a hub without members.
func New(cfg Config) (_ *Hub, err error) {
	cfg.Depth = cmp.Or(cfg.Depth, defaultDepth)
	if cfg.Context == nil || cfg.Manager == nil || cfg.Members < 1 || cfg.Depth < 1 || cfg.Members*cfg.Depth > 1<<slotBits {
		return nil, fmt.Errorf("qpshare: %d members, depth %d: give Context and Manager, Members and Depth above 0, and at most %d work requests of all members: %w",
			cfg.Members, cfg.Depth, 1<<slotBits, verbs.ErrInvalid)
	}
	if dev := cfg.Context.Device(); cfg.Members*cfg.Depth > dev.MaxQPWR || 2*cfg.Members*cfg.Depth > dev.MaxCQE {
		return nil, fmt.Errorf("%d threads with %d work requests each on one queue pair; the device has room for %d and %d completions: "+
			"use fewer threads: %w",
			cfg.Members, cfg.Depth, dev.MaxQPWR, dev.MaxCQE, verbs.ErrLimit)
	}
	h := &Hub{cfg: cfg, conns: make(map[place]*conn), private: make(map[wire.QPN]*qp), slots: make([]slot, cfg.Members*cfg.Depth)}
	for i := len(h.slots); i > 0; i-- {
		h.free = append(h.free, uint64(i-1))
	}
	if h.pd, err = cfg.Context.AllocPD(); err != nil {
		return nil, err
	}
	// The queue has room for all sends, and for as many receives.
	if h.cq, err = cfg.Context.CreateCQ(2 * cfg.Members * cfg.Depth); err != nil {
		return nil, errors.Join(err, h.pd.Dealloc())
	}
	return h, nil
}

// Join returns a new member, for one thread.
func (h *Hub) Join() (*Member, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, fmt.Errorf("qpshare: %w", verbs.ErrClosed)
	case len(h.members) == h.cfg.Members:
		return nil, fmt.Errorf("%d threads share the queue pairs already: %w", h.cfg.Members, verbs.ErrLimit)
	}
	m := &Member{Context: h.cfg.Context, hub: h, gate: h.cfg.Context.Runtime().NewGate()}
	m.cq.m = m
	h.members = append(h.members, m)
	return m, nil
}

func (h *Hub) leave(m *Member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members = slices.DeleteFunc(h.members, func(o *Member) bool { return o == m })
}

// Close ends all connections and destroys the hub's objects. The members must have ended.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	list := slices.Clone(h.all)
	h.mu.Unlock()
	var errs []error
	for _, c := range list {
		errs = append(errs, verbs.Gone(c.destroy()))
	}
	return errors.Join(append(errs, verbs.Gone(h.cq.Destroy()), verbs.Gone(h.pd.Dealloc()))...)
}

// reserve takes slots for the work requests of queue pair q, and returns these work requests with
// the IDs of the slots. c is the shared connection of q; nil if q is not shared. The queues of the
// device have room for the work requests of all members.
func (h *Hub) reserve(q *qp, c *conn, wrs []verbs.SendWR) ([]verbs.SendWR, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := q.member
	if h.err != nil {
		return nil, postError(verbs.ErrClosed, "the completion queue has failed")
	}
	if c != nil && (c.dead || q.ended) {
		return nil, postError(verbs.ErrState, "the shared queue pair has failed")
	}
	if m.pending+len(wrs) > h.cfg.Depth || len(wrs) > len(h.free) {
		return nil, postError(verbs.ErrNoSpace, fmt.Sprintf("%d work requests of this thread are in flight", m.pending))
	}
	m.wrs = append(m.wrs[:0], wrs...)
	for i := range m.wrs {
		w := &m.wrs[i]
		n := h.free[len(h.free)-1]
		h.free = h.free[:len(h.free)-1]
		h.slots[n] = slot{use: h.slots[n].use + 1, q: q, c: c, m: m, id: w.ID, signaled: w.Flags&verbs.Signalled != 0, used: true}
		// Work requests of other members are between those of this thread, so each needs a
		// completion of its own.
		w.ID, w.Flags = sendID(n, h.slots[n].use), w.Flags|verbs.Signalled
	}
	m.pending += len(wrs)
	if q.pending += len(wrs); c != nil {
		c.pending += len(wrs)
	}
	return m.wrs, nil
}

func postError(err error, detail string) error {
	return &verbs.OpError{Op: "post send", Err: err, Detail: detail}
}

// slotBits is the number of bits for the slot's index in an ID. The lowest bit of an ID marks
// sends. The bits above the index are the slot's use. With it, a late completion of a destroyed
// queue pair is not taken for that of the slot's next work request.
const slotBits = 20

func sendID(n, use uint64) uint64 { return (use<<slotBits|n)<<1 | 1 }

// slotOf returns the index of a slot that is encoded in the ID of a work request. It returns false
// if the work request with this ID is not in flight.
func (h *Hub) slotOf(id uint64) (uint64, bool) {
	n, use := id>>1&(1<<slotBits-1), id>>(slotBits+1)
	if id&1 == 0 || n >= uint64(len(h.slots)) {
		return 0, false
	}
	s := &h.slots[n]
	return n, s.used && s.use&(1<<(63-slotBits)-1) == use
}

// release frees a slot whose work request has completed, was not posted, or will not complete. The
// caller holds mu.
func (h *Hub) release(n uint64) slot {
	s := h.slots[n]
	h.slots[n] = slot{use: s.use}
	h.free = append(h.free, n)
	s.m.pending--
	if s.q != nil {
		s.q.pending--
	}
	if s.c != nil {
		s.c.pending--
	}
	return s
}

// take passes completions to their members, and returns the connections that must be destroyed. The
// caller holds mu.
func (h *Hub) take(wcs []verbs.WC) (gone []*conn) {
	for i := range wcs {
		wc := wcs[i]
		if wc.ID&1 == 0 { // a receive
			if q := h.private[wc.QPN]; q != nil {
				wc.ID >>= 1
				q.member.cq.give(wc)
			}
			continue
		}
		n, ok := h.slotOf(wc.ID)
		if !ok {
			continue
		}
		s := h.release(n)
		if s.c != nil && wc.Status != verbs.Success {
			h.forget(s.c)
		}
		if s.c != nil && s.c.over() {
			gone = append(gone, s.c)
		}
		if s.q != nil && (s.signaled || wc.Status != verbs.Success) {
			wc.ID = s.id
			s.m.cq.give(wc)
		}
	}
	return gone
}

// fail ends all waits, because there are no further completions. The caller holds mu.
func (h *Hub) fail(err error) {
	if h.err == nil {
		h.err = err
	}
	for _, m := range h.members {
		m.gate.Open()
	}
}

// succeed wakes a waiting member, which then becomes the leader and polls for all members. It does
// nothing if there is a leader. The caller holds mu.
func (h *Hub) succeed() {
	if h.leader != nil {
		return
	}
	for _, m := range h.members {
		if m.waiting {
			m.gate.Open()
			return
		}
	}
}

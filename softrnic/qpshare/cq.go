package qpshare

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// cq is the completion queue of a member (one thread). All members share one completion queue of
// the device; cq has those of its completions that belong to this member's work requests.
type cq struct {
	m    *Member
	list []verbs.WC // those that the thread has not polled yet; Hub.mu guards it
}

var _ verbs.CQ = (*cq)(nil)

// give adds a completion. The caller holds mu.
func (c *cq) give(wc verbs.WC) {
	c.list = append(c.list, wc)
	c.m.gate.Open()
}

// Poll takes completions of this member. If the member has none, Poll first polls the shared queue
// for all members, unless another member (the leader) is doing that.
func (c *cq) Poll(wc []verbs.WC) (int, error) {
	m, h := c.m, c.m.hub
	h.mu.Lock()
	if len(c.list) == 0 && h.err == nil && h.leader == nil {
		h.leader = m
		h.mu.Unlock()
		_, err := h.poll()
		h.mu.Lock()
		h.step(err)
	}
	defer h.mu.Unlock()
	n := copy(wc, c.list)
	c.list = c.list[:copy(c.list, c.list[n:])]
	if n == 0 && h.err != nil {
		return 0, h.err
	}
	return n, nil
}

// Resize fails: a member's queue grows as needed.
func (c *cq) Resize(int) error {
	return &verbs.OpError{Op: "resize CQ", Err: verbs.ErrNotSupported, Detail: "the queue of a member grows as needed"}
}

// Moderate fails: the shared queue has no events that could be delayed.
func (c *cq) Moderate(int, time.Duration) error { return c.Arm(false) }

// step is called when the leader, the member that has polled for all, stops polling; err is the
// error of its last poll or wait. The caller holds mu.
func (h *Hub) step(err error) {
	h.leader = nil
	if err != nil && !errors.Is(err, verbs.ErrTimeout) {
		h.fail(err)
	}
	h.succeed()
}

// poll makes one poll of the completion queue that all members share, and passes the completions to
// the members. The caller is the leader, the only member that polls.
func (h *Hub) poll() (int, error) {
	n, err := h.cq.Poll(h.wcs[:])
	if n == 0 {
		return 0, err
	}
	h.mu.Lock()
	gone := h.take(h.wcs[:n])
	h.mu.Unlock()
	for _, c := range gone {
		_ = c.destroy() // the failure was already reported
	}
	return n, err
}

// Wait waits until there is a completion for this member.
func (c *cq) Wait(deadline clock.Time) error {
	m, h := c.m, c.m.hub
	for {
		h.mu.Lock()
		m.waiting = false
		switch {
		case len(c.list) > 0:
			h.succeed()
			h.mu.Unlock()
			return nil
		case h.err != nil:
			h.mu.Unlock()
			return h.err
		}
		lead := h.leader == nil
		if lead {
			h.leader = m
		} else {
			m.waiting = true
		}
		h.mu.Unlock()
		if lead {
			if err := c.lead(deadline); err != nil {
				return err
			}
			continue
		}
		if err := m.gate.Wait(deadline); err != nil {
			h.mu.Lock()
			m.waiting = false
			h.succeed() // if this member was chosen as the next leader, another one is chosen
			ready := len(c.list) > 0
			h.mu.Unlock()
			if ready {
				return nil
			}
			return err
		}
	}
}

// lead polls for all members until this member has a completion.
func (c *cq) lead(deadline clock.Time) error {
	h := c.m.hub
	var err error
	for err == nil {
		var n int
		if n, err = h.poll(); err == nil && n == 0 {
			err = h.cq.Wait(deadline)
		}
		h.mu.Lock()
		if len(c.list) > 0 || err != nil {
			break
		}
		h.mu.Unlock()
	}
	h.step(err)
	if len(c.list) > 0 {
		err = nil
	}
	h.mu.Unlock()
	return err
}

// Arm fails: an event of the shared queue would wake only one thread.
func (c *cq) Arm(bool) error {
	return &verbs.OpError{Op: "arm CQ", Err: verbs.ErrNotSupported, Detail: "a shared queue has no events"}
}

// WaitEvent fails: the shared queue has no events.
func (c *cq) WaitEvent(clock.Time) error { return c.Arm(false) }

// Destroy discards the member's completions.
func (c *cq) Destroy() error {
	h := c.m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c.list = nil
	return nil
}

package qpshare

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// qp is a queue pair of a Member, that is, of one thread. Before Dial, the device has no queue pair
// for it. After Dial, conn is the shared connection that it uses, or real is a queue pair of the
// device for it alone.
type qp struct {
	member *Member
	init   verbs.QPInit
	real   verbs.QP
	conn   *conn
	// pending is the number of work requests of this queue pair in flight.
	pending int
	// ended: the member has ended the queue pair.
	ended bool
}

var _ verbs.QP = (*qp)(nil)

// under returns the device's queue pair; nil if qp is not connected.
func (q *qp) under() verbs.QP {
	if q.conn != nil {
		return q.conn.real
	}
	return q.real
}

func stateError(op string) error {
	return &verbs.OpError{Op: op, Err: verbs.ErrState, Detail: "a member's queue pair is connected by Dial only"}
}

// QPN returns the number of the device's queue pair; 0 before it is connected.
func (q *qp) QPN() wire.QPN {
	if u := q.under(); u != nil {
		return u.QPN()
	}
	return 0
}

func (q *qp) Query() (verbs.QPAttr, error) {
	if u := q.under(); u != nil {
		return u.Query()
	}
	return verbs.QPAttr{Type: verbs.RC}, nil
}

// AttachMulticast fails: a member has no datagram queue pairs.
func (q *qp) AttachMulticast(verbs.GID) error { return datagramError("attach multicast") }

// DetachMulticast fails: a member has no datagram queue pairs.
func (q *qp) DetachMulticast(verbs.GID) error { return datagramError("detach multicast") }

func datagramError(op string) error {
	return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "a member's queue pair is not for datagrams"}
}

// ToInit and the six methods after it, up to ToReset, fail, because Dial makes the transitions and
// sets the attributes.
func (q *qp) ToInit(verbs.ToInit) error   { return stateError("modify QP to INIT") }
func (q *qp) ToRTR(verbs.ToRTR) error     { return stateError("modify QP to RTR") }
func (q *qp) ToRTS(verbs.ToRTS) error     { return stateError("modify QP to RTS") }
func (q *qp) Modify(verbs.QPModify) error { return stateError("modify QP") }
func (q *qp) ToSQD() error                { return stateError("modify QP to SQD") }
func (q *qp) ResumeRTS() error            { return stateError("modify QP to RTS") }
func (q *qp) ToReset() error              { return stateError("modify QP to RESET") }

// ToError flushes the work requests in flight. If some are in flight on a shared connection, the
// connection ends for all members.
func (q *qp) ToError() error {
	h := q.member.hub
	h.mu.Lock()
	q.ended = true
	c, busy := q.conn, q.pending > 0
	h.mu.Unlock()
	switch {
	case c != nil && busy:
		return c.end()
	case c == nil && q.real != nil:
		return q.real.ToError()
	}
	return nil
}

// End ends the shared connection of a member's queue pair for all members. A member calls it when
// it knows that the peer has ended the connection. While no request is in flight, the NIC does not
// notice that, and the hub would attach further queue pairs to the connection.
func End(of verbs.QP) error {
	if q, ok := of.(*qp); ok && q.conn != nil {
		return q.conn.end()
	}
	return nil
}

// PostSend posts work requests. The work requests of one member keep their order.
func (q *qp) PostSend(wr ...verbs.SendWR) error {
	u := q.under()
	if u == nil {
		return postError(verbs.ErrState, "the queue pair is not connected")
	}
	h := q.member.hub
	list, err := h.reserve(q, q.conn, wr)
	if err != nil {
		return err
	}
	err = u.PostSend(list...)
	if err == nil {
		return nil
	}
	posted := 0
	var op *verbs.OpError
	if errors.As(err, &op) {
		posted = op.Index
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range list[posted:] {
		if n, ok := h.slotOf(list[posted+i].ID); ok {
			h.release(n)
		}
	}
	if q.conn != nil {
		h.forget(q.conn)
	}
	return err
}

// PostRecv posts receives. It fails on a shared connection, which has no receives.
func (q *qp) PostRecv(wr ...verbs.RecvWR) error {
	if q.real == nil {
		return &verbs.OpError{Op: "post receive", Err: verbs.ErrState, Detail: "only a queue pair of a member's own receives"}
	}
	list := make([]verbs.RecvWR, len(wr))
	for i := range wr {
		list[i] = wr[i]
		list[i].ID <<= 1
	}
	return q.real.PostRecv(list...)
}

// Destroy ends the queue pair. The member gets no completions of work requests in flight.
func (q *qp) Destroy() error {
	h := q.member.hub
	h.mu.Lock()
	q.ended = true
	real, c := q.real, q.conn
	for i := range h.slots {
		if s := &h.slots[i]; s.used && s.q == q {
			if s.q = nil; c == nil {
				h.release(uint64(i)) // no completion will come, because the queue pair is destroyed
			}
		}
	}
	q.real, q.conn, q.pending = nil, nil, 0
	if real != nil {
		delete(h.private, real.QPN())
	}
	h.mu.Unlock()
	switch {
	case real != nil:
		return real.Destroy()
	case c != nil:
		return c.detach()
	}
	return nil
}

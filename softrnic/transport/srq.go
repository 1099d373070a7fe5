package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// SRQ is a shared receive queue. A queue pair that uses an SRQ has a receive queue with a single
// entry: when a message needs a receive, the oldest receive of the SRQ is moved into that entry
// (IBTA 10.2.9). If the message is dropped, the receive stays with the queue pair for its next
// message.
type SRQ struct {
	id      uint32
	pd      mem.PD
	rq      recvQueue
	outside Receives // the source of receives instead of rq; nil means none
	limit   int      // see SetLimit; 0 means that the limit event is not armed
	reached bool     // see LimitReached
	// received adds the completions of an XRC queue to its completion queue; nil for others. broken
	// is true after this completion queue has overrun.
	received *cq.Source
	broken   bool
}

// NewSRQ returns an empty queue. Its receives name memory of pd. The caller chooses id, which
// asynchronous events carry.
func NewSRQ(id uint32, pd mem.PD, init verbs.SRQInit) (*SRQ, error) {
	err := fill("create SRQ", []sizeAttr{{"MaxWR", &init.MaxWR, 128, maxWR}, {"MaxSGE", &init.MaxSGE, 4, maxSGEs}})
	if err != nil {
		return nil, err
	}
	return &SRQ{id: id, pd: pd, rq: newRecvQueue(init.MaxWR, init.MaxSGE)}, nil
}

func (s *SRQ) Query() verbs.SRQAttr {
	return verbs.SRQAttr{ID: s.id, MaxWR: s.rq.limit, MaxSGE: s.rq.maxSGE, Limit: s.limit, Queued: s.queued()}
}

// PostRecv queues a receive. Errors: ErrNoSpace when MaxWR receives are queued, ErrInvalid for a
// malformed request.
func (s *SRQ) PostRecv(wr *verbs.RecvWR) error { return s.rq.post("post SRQ recv", wr) }

// SetLimit arms the limit event, as verbs.SRQ says.
func (s *SRQ) SetLimit(n int) error {
	if n < 0 || n > s.rq.limit {
		return verbs.Errorf("modify SRQ", verbs.ErrInvalid, "limit %d; choose 1 to %d, or 0 for none", n, s.rq.limit)
	}
	s.limit = n
	return nil
}

// Resize changes the capacity, as verbs.SRQ says.
func (s *SRQ) Resize(n int) error {
	const op = "modify SRQ"
	switch {
	case n < 1 || n > maxWR:
		return verbs.Errorf(op, verbs.ErrInvalid, "MaxWR is %d; choose 1 to %d", n, maxWR)
	case s.outside != nil:
		return verbs.Errorf(op, verbs.ErrNotSupported, "the receives are in a ring of another process")
	case n < s.rq.len():
		return verbs.Errorf(op, verbs.ErrInvalid, "MaxWR is %d, and %d receives are queued", n, s.rq.len())
	case n < s.limit:
		return verbs.Errorf(op, verbs.ErrInvalid, "MaxWR is %d, and the limit is %d; lower the limit first", n, s.limit)
	}
	s.rq = s.rq.resized(n)
	return nil
}

// LimitReached reports whether the number of receives has fallen below the limit since the last
// call.
func (s *SRQ) LimitReached() bool {
	r := s.reached
	s.reached = false
	return r
}

func (s *SRQ) queued() int {
	if s.outside != nil {
		return s.outside.Len() + s.rq.len()
	}
	return s.rq.len()
}

// take moves the oldest receive of the SRQ into the queue `to`, which must be empty. It returns
// false if the SRQ has no receive.
func (s *SRQ) take(to *recvQueue) bool {
	if s.rq.len() == 0 && (s.outside == nil || !s.rq.takeFrom(s.outside)) {
		return false
	}
	*to.at(to.tail) = *s.rq.at(s.rq.head)
	copy(to.sgl(to.tail), s.rq.sgl(s.rq.head))
	to.tail++
	s.rq.head++
	if s.queued() < s.limit {
		s.limit, s.reached = 0, true // the limit event is raised only once, until the limit is set again
	}
	return true
}

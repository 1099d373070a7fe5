package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// SRQ is a shared receive queue. A queue pair that uses one has a private receive queue of a single
// place: when a message needs a receive and none is there, the oldest of the shared ones moves in
// (IBTA 10.2.9). So when a message is dropped, its receive stays with the queue pair and takes the
// next message.
type SRQ struct {
	id      uint32
	pd      mem.PD
	rq      recvQueue
	outside Receives // instead of rq, or nil
	limit   int
	reached bool
}

// NewSRQ returns an empty queue. Its receives name memory of pd. The id is the caller's, for
// events.
func NewSRQ(id uint32, pd mem.PD, init verbs.SRQInit) (*SRQ, error) {
	for _, f := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"MaxWR", &init.MaxWR, 128, maxWR},
		{"MaxSGE", &init.MaxSGE, 4, maxSGEs},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 1 || *f.v > f.max {
			return nil, postErr("create SRQ", verbs.ErrInvalid, "%s is %d; choose 1 to %d", f.name, *f.v, f.max)
		}
	}
	return &SRQ{id: id, pd: pd, rq: newRecvQueue(init.MaxWR, init.MaxSGE)}, nil
}

// Query returns attributes and state.
func (s *SRQ) Query() verbs.SRQAttr {
	return verbs.SRQAttr{ID: s.id, MaxWR: s.rq.limit, MaxSGE: s.rq.maxSGE, Limit: s.limit, Queued: s.queued()}
}

// PostRecv queues a receive. It is refused with ErrNoSpace when MaxWR are queued, and ErrInvalid
// when it is malformed.
func (s *SRQ) PostRecv(wr *verbs.RecvWR) error { return s.rq.post("post SRQ recv", wr) }

// SetLimit arms the limit event: see verbs.SRQ.
func (s *SRQ) SetLimit(n int) error {
	if n < 0 || n > s.rq.limit {
		return postErr("modify SRQ", verbs.ErrInvalid, "limit %d; choose 1 to %d, or 0 for none", n, s.rq.limit)
	}
	s.limit = n
	return nil
}

// Resize changes how many receives fit: see verbs.SRQ.
func (s *SRQ) Resize(n int) error {
	const op = "modify SRQ"
	switch {
	case n < 1 || n > maxWR:
		return postErr(op, verbs.ErrInvalid, "MaxWR is %d; choose 1 to %d", n, maxWR)
	case s.outside != nil:
		return postErr(op, verbs.ErrNotSupported, "the receives are in a ring of another process")
	case n < s.rq.len():
		return postErr(op, verbs.ErrInvalid, "MaxWR is %d, and %d receives are queued", n, s.rq.len())
	case n < s.limit:
		return postErr(op, verbs.ErrInvalid, "MaxWR is %d, and the limit is %d; lower the limit first", n, s.limit)
	}
	s.rq = s.rq.resized(n)
	return nil
}

// LimitReached reports whether the limit was passed since the last call, and clears that.
func (s *SRQ) LimitReached() bool {
	r := s.reached
	s.reached = false
	return r
}

// queued is how many receives wait.
func (s *SRQ) queued() int {
	if s.outside != nil {
		return s.outside.Len() + s.rq.len()
	}
	return s.rq.len()
}

// take moves the oldest receive to the queue to, which is empty. False: there is none.
func (s *SRQ) take(to *recvQueue) bool {
	if s.rq.len() == 0 && (s.outside == nil || !s.rq.takeFrom(s.outside)) {
		return false
	}
	*to.at(to.tail) = *s.rq.at(s.rq.head)
	copy(to.sgl(to.tail), s.rq.sgl(s.rq.head))
	to.tail++
	s.rq.head++
	if s.queued() < s.limit {
		s.limit, s.reached = 0, true // once, until it is armed again
	}
	return true
}

package cq

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Source is the part of a completion queue that belongs to one queue of a queue pair, its send
// queue or its receive queue. It pushes completions, and can remove them.
type Source struct {
	c          *CQ
	n          int   // number of completions of the source that are not in the ring: they form a chain
	head, tail int32 // places of the oldest and the newest of them; valid if n > 0
	at         int   // index of its chain in the heap; valid if n > 0
	closed     bool  // see Close
}

func (s *Source) CQ() *CQ { return s.c }

// Push appends a copy of wc, unless the source is closed. It returns false if the queue is full and does not ignore overruns:
// then wc is lost, and the caller raises the error of the queue.
func (s *Source) Push(now clock.Time, wc *verbs.WC) bool {
	c := s.c
	switch {
	case s.closed:
		return true
	case c.ring.n < c.ring.most && len(c.chains) == 0:
		c.ring.add(s, wc)
	case c.Len() < c.depth:
		s.chain(wc)
	case c.lenient:
		c.pushed++
		return true
	default:
		return false
	}
	c.pushed++
	if c.armed != unarmed {
		c.notice(now, wc)
	}
	return true
}

// chain appends a copy of wc to the chain of the source. The caller has checked that the queue is
// not full.
func (s *Source) chain(wc *verbs.WC) {
	c := s.c
	at := c.places.take()
	p := c.places.at(at)
	p.wc, p.pushed = *wc, c.pushed
	if s.n == 0 {
		s.head = at
		c.chains.add(s, p.pushed)
	} else {
		c.places.at(s.tail).next = at
	}
	s.tail = at
	s.n++
}

// Purge removes the completions of the source; the others keep their order. It is called when the
// queue pair is reset or destroyed, with the engine's lock held, so the number of its steps is
// limited (see maxRing).
func (s *Source) Purge() {
	s.c.ring.purge(func(e *entry) bool { return e.s == s })
	if s.n == 0 {
		return
	}
	s.c.chains.remove(s.at)
	s.c.places.free(s.head, s.tail, s.n)
	s.n = 0
	if len(s.c.chains) == 0 {
		s.c.dropped = nil
	}
}

// Close removes the completions of the source, as Purge does, and lets Push drop those that come later.
func (s *Source) Close() {
	s.Purge()
	s.closed = true
}

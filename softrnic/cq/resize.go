package cq

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxMoved is the largest number of completions that Resize moves. It is limited, because the NIC
// is locked while Resize moves them.
const maxMoved = 1 << 14

// Resize gives c the capacity and the memory of the queue `to`, which must be empty and which the
// caller must not use afterwards. Completions, their order and arming stay. Resize fails with
// ErrInvalid if more completions wait than the new capacity. It fails with ErrBusy if more than
// maxMoved wait.
func (c *CQ) Resize(to *CQ) error {
	const op = "resize cq"
	switch n := c.Len(); {
	case n > to.Cap():
		return verbs.Errorf(op, verbs.ErrInvalid, "%d completions wait, more than the new depth %d; poll first", n, to.Cap())
	case n > maxMoved:
		return verbs.Errorf(op, verbs.ErrBusy, "%d completions wait; poll until %d are left", n, maxMoved)
	}
	for i := range c.ring.n {
		e := &c.ring.all[c.ring.at(i)]
		to.ring.add(e.s, &e.wc)
	}
	if to.depth > to.ring.most {
		for i := range c.chains {
			c.chains[i].s.moveTo(&to.places)
		}
	} else {
		for len(c.chains) > 0 {
			if s, wc := c.unchain(); wc != nil {
				to.ring.add(s, wc)
			}
		}
	}
	c.depth, c.ring, c.places = to.depth, to.ring, to.places
	to.depth, to.ring, to.places = 0, ring{}, places{}
	return nil
}

// moveTo copies the source's completions that are not in the ring to free places of `to`, which has
// enough of them.
func (s *Source) moveTo(to *places) {
	at := s.head
	for i := range s.n {
		from := s.c.places.at(at)
		new := to.take()
		p := to.at(new)
		p.wc, p.pushed = from.wc, from.pushed
		if i == 0 {
			s.head = new
		} else {
			to.at(s.tail).next = new
		}
		s.tail, at = new, from.next
	}
}

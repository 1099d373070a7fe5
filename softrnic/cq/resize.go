package cq

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxMoved bounds the completions that Resize moves, which it does with the engine's lock held.
const maxMoved = 1 << 14

// Resize gives c the room of to, an empty queue that the caller has made for that and must not use
// afterwards. Completions, their order, arming and the error of an overrun stay. It fails with
// ErrInvalid when more completions wait than there is room for, and with ErrBusy when so many wait
// that moving them would stop the NIC.
func (c *CQ) Resize(to *CQ) error {
	const op = "resize cq"
	switch n := c.Len(); {
	case n > to.Cap():
		return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("%d completions wait, more than the new depth %d; poll first", n, to.Cap())}
	case n > maxMoved:
		return &verbs.OpError{Op: op, Err: verbs.ErrBusy, Detail: fmt.Sprintf("%d completions wait; poll until %d are left", n, maxMoved)}
	}
	for i := range c.chains {
		c.chains[i].s.moveTo(&to.places)
	}
	c.places, to.places = to.places, places{}
	return nil
}

// moveTo copies the completions of a source to new places, which are enough.
func (s *Source) moveTo(to *places) {
	at := s.head
	for i := range s.n {
		from := &s.c.places.all[at]
		new, _ := to.take()
		to.all[new].wc, to.all[new].pushed = from.wc, from.pushed
		if i == 0 {
			s.head = new
		} else {
			to.all[s.tail].next = new
		}
		s.tail, at = new, from.next
	}
}

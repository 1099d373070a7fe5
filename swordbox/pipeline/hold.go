package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// maxHeldFrame is the length of the longest frame that the switch can hold, in bytes: one packet of
// the largest link MTU.
const maxHeldFrame = 9216 + 18

// HoldID names a packet that the switch holds. Zero names none.
type HoldID uint64

// holds is a bounded store of held packets. Slots keep their memory when they are free.
type holds struct {
	slots []held
	free  []uint32
	due   clock.Queue
	max   int
}

type held struct {
	gen     uint32
	live    bool
	ingress int
	data    []byte
}

// add copies a packet and returns its ID; 0 means that there is no room.
func (h *holds) add(ingress int, data []byte, until clock.Time) HoldID {
	var i uint32
	switch {
	case len(h.free) != 0:
		i = h.free[len(h.free)-1]
		h.free = h.free[:len(h.free)-1]
	case len(h.slots) < h.max:
		i = uint32(len(h.slots))
		h.slots = append(h.slots, held{})
	default:
		return 0
	}
	s := &h.slots[i]
	s.gen++
	s.live, s.ingress = true, ingress
	s.data = append(s.data[:0], data...)
	h.due.Set(i, until)
	return HoldID(s.gen)<<32 | HoldID(i)
}

// get returns the slot of id; nil means that the switch does not hold the packet any more.
func (h *holds) get(id HoldID) *held {
	i := uint32(id)
	if int(i) >= len(h.slots) || h.slots[i].gen != uint32(id>>32) || !h.slots[i].live {
		return nil
	}
	return &h.slots[i]
}

// remove frees the slot of a live id. Its bytes stay valid until the next add.
func (h *holds) remove(id HoldID) {
	i := uint32(id)
	h.slots[i].live = false
	h.free = append(h.free, i)
	h.due.Remove(i)
}

// next returns a held packet that must leave now, because the time until which it is held has come;
// 0 means that there is none.
func (h *holds) next(now clock.Time) HoldID {
	i, at := h.due.Next()
	if at > now {
		return 0
	}
	return HoldID(h.slots[i].gen)<<32 | HoldID(i)
}

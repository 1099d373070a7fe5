package hard

import "github.com/rdmalab/rdmalab/softrnic/clock"

// heldPacket is a copy of a request that waits for its place. Slots keep their memory.
type heldPacket struct {
	data []byte
	span int
	at   clock.Time
	next int32
	// hurried says that it must not wait for a value any more.
	hurried bool
}

// pool is the bounded store of all held packets.
type pool struct {
	slots []heldPacket
	free  []int32
	max   int
	inUse int
}

// add copies a packet; -1 says that there is no room.
func (p *pool) add(data []byte, span int, now clock.Time) int32 {
	var i int32
	switch {
	case len(p.free) > 0:
		i = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
	case len(p.slots) < p.max:
		i = int32(len(p.slots))
		p.slots = append(p.slots, heldPacket{})
	default:
		return -1
	}
	p.inUse++
	h := &p.slots[i]
	h.data = append(h.data[:0], data...)
	h.span, h.at, h.next, h.hurried = span, now, -1, false
	return i
}

func (p *pool) remove(i int32) {
	p.inUse--
	p.free = append(p.free, i)
}

// queue is the held packets of one lane, oldest first.
type queue struct {
	first, last int32
	n           int
}

func (q *queue) push(p *pool, i int32) {
	if q.n == 0 {
		q.first = i
	} else {
		p.slots[q.last].next = i
	}
	q.last = i
	q.n++
}

func (q *queue) pop(p *pool) {
	i := q.first
	q.first = p.slots[i].next
	q.n--
	p.remove(i)
}

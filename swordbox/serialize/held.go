package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// heldPacket is a slot of the pool with a copy of a held request. The slot keeps its memory when it
// is free.
type heldPacket struct {
	data []byte
	span int        // how many PSNs the request takes
	at   clock.Time // when it arrived
	next int32      // slot of the flow's next held request; -1 if there is none
	port int32      // port of the host in whose share the request is
	// hurried is true if the held CAS must not wait any longer for the value that it compares with.
	hurried bool
}

// pool is a bounded store for the held requests of all flows. Its shares decide which host may use
// a slot.
type pool struct {
	slots []heldPacket
	free  []int32
	shares
}

func newPool(most int) pool { return pool{shares: newShares(most)} }

// add copies a packet of the host at a port into a free slot and returns its index; -1: there is no
// room.
func (p *pool) add(data []byte, span, port int, now clock.Time) int32 {
	if !p.room(port) {
		return -1
	}
	i := int32(len(p.slots))
	if n := len(p.free); n > 0 {
		i = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		p.slots = append(p.slots, heldPacket{})
	}
	p.take(port)
	h := &p.slots[i]
	h.data = append(h.data[:0], data...)
	h.span, h.at, h.next, h.port, h.hurried = span, now, -1, int32(port), false
	return i
}

func (p *pool) remove(i int32) {
	p.giveBack(int(p.slots[i].port))
	p.free = append(p.free, i)
}

// queue is the list of the held requests of one flow, oldest first.
type queue struct {
	first, last int32 // slots of the oldest and of the newest request; valid if n is not 0
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

// keep copies a request of a flow into the pool and returns its slot; -1: there is no room.
func (m *Machine) keep(c *pipeline.Ctx, f *conntrack.Flow, data []byte, span int) int32 {
	m.held.fit(c.Ports())
	i := m.held.add(data, span, f.Port, c.Now)
	h := &m.held.hosts[f.Port+1]
	if h.addr = f.Requester; i < 0 {
		h.refused++
	}
	return i
}

// popHeld removes the first held request of a flow. If any flow waits for room in the pool
// (wanted), settle runs again.
func (m *Machine) popHeld(q *queue) {
	i := q.first
	q.first = m.held.slots[i].next
	q.n--
	m.held.remove(i)
	if m.held.wanted {
		m.held.wanted, m.kick = false, true
	}
}

// waitingRoom holds the held requests of one flow, and the value for which the first of them waits.
type waitingRoom struct {
	held   queue
	heard  heard
	awaits waiting
	// blocked is true while the sequencer is in Machine.blocked. served is true if settle released
	// some of its requests in the last round.
	blocked, served bool
}

// hurry makes the first held CAS stop waiting for a value. The result reports whether it was
// waiting. hurry is called when the client's NIC retransmits a request, because the NIC's retries
// would run out. It is also called when a later request of the flow may change the word: another
// thread on the same connection may release the lock.
func (q *waitingRoom) hurry(p *pool) bool {
	if q.awaits.word == nil || q.held.n == 0 {
		return false
	}
	p.slots[q.held.first].hurried = true
	q.awaits = waiting{}
	return true
}

// missUntil returns the time until which the first held request, a CAS, waits for the word to have
// the value that the CAS compares with.
func (q *waitingRoom) missUntil(p *pool) clock.Time {
	return p.slots[q.held.first].at.Add(q.awaits.time)
}

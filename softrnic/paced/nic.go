package paced

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// NIC applies the costs of a NIC and of its link's direction to the switch. NewNIC makes one.
type NIC struct {
	card    *cost.Card
	line    *cost.Line
	waiting hold
	dropped Dropped
}

// Dropped counts frames for which there was no room: of those that have arrived, and of those that the
// NIC has made.
type Dropped struct{ Arrived, Made uint64 }

// NewNIC returns a NIC with the costs of m. memory and seed are those of cost.NIC.NewCard.
func NewNIC(m *cost.Model, memory cost.Memory, seed uint64) *NIC {
	return &NIC{card: m.NIC.NewCard(memory, seed), line: cost.NewLine(&m.Link)}
}

// Arrived takes a frame that the link has delivered at the time `now`. Due gives it to the NIC's state
// machine.
func (n *NIC) Arrived(now clock.Time, f packetio.Frame) {
	if !n.waiting.add(n.card.Begin(now, f.Data), stalled, f) {
		n.dropped.Arrived++
	}
}

// Made takes a frame that the NIC's state machine has made at the time `now`. posted: in a call by
// which a program posts. Due gives it to the link.
func (n *NIC) Made(now clock.Time, f packetio.Frame, posted bool) {
	if !n.waiting.add(n.card.Depart(now, f.Data, posted), leaving, f) {
		n.dropped.Made++
	}
}

// Deadline returns when Due must be called next.
func (n *NIC) Deadline() clock.Time { return n.waiting.next() }

// Due appends the frames that have spent their time to batches: `in` gets those for the NIC's state
// machine, out those that have crossed the link.
func (n *NIC) Due(now clock.Time, in, out *packetio.Batch) {
	for n.waiting.next() <= now {
		e := n.waiting.pop()
		switch e.stage {
		case stalled:
			n.waiting.push(e, n.card.Arrive(e.at, e.frame.Data), inside)
		case leaving:
			n.waiting.push(e, n.line.Send(e.at, len(e.frame.Data)), onLine)
		case inside:
			n.waiting.give(e, in)
		case onLine:
			n.waiting.give(e, out)
		}
	}
}

// Dropped returns how many frames found no room.
func (n *NIC) Dropped() Dropped { return n.dropped }

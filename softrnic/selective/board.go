package selective

import "github.com/rdmalab/rdmalab/softrnic/clock"

// State is what a sender knows of one PSN.
type State uint8

// States of a PSN.
const (
	Unsent  State = iota
	Flying        // sent, and neither known to have arrived nor taken for lost
	Lost          // must be sent again
	Held          // the peer has received the request, and waits for packets before it
	Settled       // the request is executed, or the response has been received
)

var stateNames = [...]string{"unsent", "flying", "lost", "held", "settled"}

func (s State) String() string { return stateNames[s] }

// Event changes the state of a PSN.
type Event uint8

// Events.
const (
	Sent    Event = iota // the packet is sent, for the first time or again
	Losing               // the packet is taken for lost
	Holding              // the peer says that it holds the packet
	Settle               // the peer has executed the request, or the response has arrived
	Forget               // the peer may have dropped what it held
)

var eventNames = [...]string{"sent", "taken for lost", "held by the peer", "settled", "dropped by the peer"}

func (e Event) String() string { return eventNames[e] }

// moves is the transition table of a PSN, by state and event. The golden file testdata/board.golden is
// its printed form.
var moves = [...][len(eventNames)]State{
	Unsent:  {Sent: Flying, Losing: Unsent, Holding: Unsent, Settle: Unsent, Forget: Unsent},
	Flying:  {Sent: Flying, Losing: Lost, Holding: Held, Settle: Settled, Forget: Lost},
	Lost:    {Sent: Flying, Losing: Lost, Holding: Held, Settle: Settled, Forget: Lost},
	Held:    {Sent: Held, Losing: Held, Holding: Held, Settle: Settled, Forget: Lost},
	Settled: {Sent: Settled, Losing: Settled, Holding: Settled, Settle: Settled, Forget: Settled},
}

// Slot is the entry of one PSN.
type Slot struct {
	State State
	// Response: the PSN settles by a response with this PSN, not by an acknowledgement.
	Response bool
	// Again: the packet was sent more than once.
	Again bool
	// Waits: the peer holds the request of this response, so that its time begins again.
	Waits bool
	// At is when the packet was sent last, or, with Waits, when the peer said that it holds it.
	At clock.Time
}

// Board is the scoreboard of a sender. Offset 0 is its oldest PSN that is not settled.
type Board struct {
	slots []Slot // a ring; the length is a power of two
	first int    // index of offset 0
	used  int    // offsets below used were sent
	count [len(stateNames)]int
}

// NewBoard returns a scoreboard for at least size PSNs.
func NewBoard(size int) *Board {
	n := 1
	for n < size {
		n *= 2
	}
	return &Board{slots: make([]Slot, n)}
}

// Size returns the number of PSNs for which there is room.
func (b *Board) Size() int { return len(b.slots) }

// Used returns the number of PSNs from the oldest one that is not settled to the newest one that
// was sent.
func (b *Board) Used() int { return b.used }

// Count returns how many of the PSNs below Used are in a state.
func (b *Board) Count(s State) int { return b.count[s] }

// At returns the entry at offset off, which must be below Size.
func (b *Board) At(off int) *Slot { return &b.slots[(b.first+off)&(len(b.slots)-1)] }

// On makes an event happen to the PSN at offset off, and returns the state before it. Only Sent may
// come with an offset that is not below Used.
func (b *Board) On(off int, e Event) State {
	s := b.At(off)
	old := s.State
	s.State = moves[old][e]
	if old != Unsent {
		b.count[old]--
	}
	if s.State != Unsent {
		b.count[s.State]++
	}
	return old
}

// Send records that the packets at offsets [off, off+n) are sent at a time. New ones must follow the
// newest one that was sent, or leave no more than what is sent with them.
func (b *Board) Send(now clock.Time, off, n int, response bool) {
	for i := off; i < off+n; i++ {
		s := b.At(i)
		switch b.On(i, Sent) {
		case Unsent:
			*s = Slot{State: Flying, Response: response, At: now}
		case Flying, Lost:
			s.Again, s.Waits, s.At = true, false, now
		case Held, Settled: // the peer has it
		}
	}
	b.used = max(b.used, off+n)
}

// Pop removes the oldest PSN if it is settled, and reports whether it was.
func (b *Board) Pop() bool {
	if b.used == 0 || b.At(0).State != Settled {
		return false
	}
	*b.At(0) = Slot{}
	b.count[Settled]--
	b.first = (b.first + 1) & (len(b.slots) - 1)
	b.used--
	return true
}

// Clear forgets all PSNs.
func (b *Board) Clear() {
	clear(b.slots)
	*b = Board{slots: b.slots}
}

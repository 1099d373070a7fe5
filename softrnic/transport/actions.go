package transport

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Actions has the results of one step of a queue pair. The caller owns the Actions, carries them
// out and resets them before the next step. A step only appends.
//
// Order: the caller delivers Done, which is in completion order, before it sends Tx. Tx is in the
// order in which the packets must leave. An acknowledgement in Tx may be sent at once: the step has
// already written the acknowledged data to memory.
type Actions struct {
	Tx    []TxPacket
	Done  []Completion
	Async []verbs.AsyncEvent
	// Payloads, if not nil, has the memory for payloads. Then they stay valid as long as its owner says,
	// and not only until Reset.
	Payloads Memory
	arena    []byte
}

// Memory is where payloads of packets are copied to.
type Memory interface {
	Alloc(n int) []byte
}

// TxPacket is a packet that a queue pair sends. Packet.Payload points into the Actions.
type TxPacket struct {
	Packet wire.Packet
	// AH is the address handle of a datagram's destination; 0 means the peer of a connection.
	AH uint32
}

// Completion is the completion WC of a work request, for a completion queue. The caller calls
// To.Push, which adds WC to that queue.
type Completion struct {
	To *cq.Source
	WC verbs.WC
}

// Reset empties a and keeps its memory.
func (a *Actions) Reset() {
	a.Tx, a.Done, a.Async, a.arena = a.Tx[:0], a.Done[:0], a.Async[:0], a.arena[:0]
}

// grown appends a zero element to s and returns a pointer to it. The caller sets the fields there.
// Building the element elsewhere and copying it would be slow: the copy loads 16 bytes at once, and
// store-to-load forwarding fails for bytes that several narrower stores have just written.
func grown[T any](s *[]T) *T {
	n := len(*s)
	b := slices.Grow(*s, 1)[:n+1]
	*s = b
	e := &b[n]
	*e = *new(T)
	return e
}

// arenaChunk is the size of the first arena, the memory for payloads, in bytes. An arena that is
// too small for one step is replaced by one of at least twice the size.
const arenaChunk = 8 << 10

// alloc returns n bytes for a payload. They stay valid until Reset; see Payloads.
func (a *Actions) alloc(n int) []byte {
	if a.Payloads != nil {
		return a.Payloads.Alloc(n)
	}
	if cap(a.arena)-len(a.arena) < n {
		a.arena = make([]byte, 0, max(arenaChunk, 2*cap(a.arena), n)) // packets that are already built stay in the old arena
	}
	off := len(a.arena)
	a.arena = a.arena[:off+n]
	return a.arena[off : off+n : off+n]
}

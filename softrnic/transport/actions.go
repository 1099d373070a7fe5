package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Actions has the results of one step of a queue pair, which the caller must carry out. The caller
// owns it and resets it between steps; a step only appends.
//
// Order: Done is in completion order and is delivered before Tx is sent. Tx is in the order in
// which the packets must leave; a step's acknowledgements stand behind the memory writes that they
// acknowledge, which were made before the step returned.
type Actions struct {
	Tx    []TxPacket
	Done  []Completion
	Async []verbs.AsyncEvent
	arena []byte
}

// TxPacket is a packet to be sent by its queue pair to its peer. Packet.Payload points into the
// Actions.
type TxPacket struct {
	QP     *QP
	Packet wire.Packet
	// AH is the address handle of a datagram; 0 is the peer.
	AH uint32
}

// Completion is an entry for a completion queue, which is pushed by To.
type Completion struct {
	To *cq.Source
	WC verbs.WC
}

// Reset empties a and keeps its memory.
func (a *Actions) Reset() {
	a.Tx, a.Done, a.Async, a.arena = a.Tx[:0], a.Done[:0], a.Async[:0], a.arena[:0]
}

// arenaChunk is the size of a fresh payload arena in bytes.
const arenaChunk = 64 << 10

// alloc returns n bytes that stay valid until Reset.
func (a *Actions) alloc(n int) []byte {
	if cap(a.arena)-len(a.arena) < n {
		a.arena = make([]byte, 0, max(arenaChunk, 2*cap(a.arena), n)) // packets already built keep the old chunk
	}
	off := len(a.arena)
	a.arena = a.arena[:off+n]
	return a.arena[off : off+n : off+n]
}

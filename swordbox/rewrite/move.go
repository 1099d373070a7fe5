package rewrite

import "github.com/rdmalab/rdmalab/softrnic/wire"

// Request moves a request to another connection: its path, its PSN there, and an acknowledgement asked for, without
// which the switch would not learn that it was executed.
func Request(f *wire.Frame, to *Path, psn wire.PSN) {
	to.Apply(f)
	f.BTH.PSN, f.BTH.AckReq = psn, true
}

// Response brings an answer to the requester behind a path: an acknowledgement, the answer of an atomic, a packet
// of a READ response. psn is the requester's own number, msn the count of messages that its connection completed;
// the packets of a READ response that have no AETH carry none.
func Response(f *wire.Frame, to *Path, psn wire.PSN, msn uint32) {
	to.Apply(f)
	Renumber(f, psn)
	if f.BTH.Opcode.Has(wire.HasAETH) {
		f.AETH.MSN = msn & msnMask
	}
}

// Renumber changes only the PSN of a packet that keeps its connection.
func Renumber(f *wire.Frame, psn wire.PSN) {
	f.BTH.PSN = psn
	f.UDP.Checksum = 0
}

// msnMask keeps the 24 bits of a message sequence number.
const msnMask = 1<<24 - 1

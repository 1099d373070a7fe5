package transform

import "github.com/rdmalab/rdmalab/softrnic/wire"

// Request moves a request to another connection: it sets the path and the PSN of that connection.
// It also requests an acknowledgement, because otherwise the switch would not learn that the
// request was executed.
func Request(f *wire.Frame, to *Path, psn wire.PSN) {
	to.Apply(f, psn)
	f.BTH.AckReq = true
}

// Response redirects a response to the requester at the end of path to: an acknowledgement, the
// response to an atomic, or a packet of a READ response. psn is the requester's PSN. msn is the
// number of messages that the requester's connection has completed; a READ response packet without
// an AETH does not carry it.
func Response(f *wire.Frame, to *Path, psn wire.PSN, msn uint32) {
	to.Apply(f, psn)
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

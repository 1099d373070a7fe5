// Package packetbuffer queues the frames that leave the switch to a host, and keeps those that find
// no room in a ring in the memory of servers. It is the hardened handler of rules of action buffer:
// the packet buffer of "Generic External Memory for Switch Data Planes" (HotNets 2018). Package
// published/packetbuffer does it as the paper describes it, with the queue of this package.
//
// Contract. A rule names a host, the rate of the port to it, and the servers of the ring. Frames of
// any protocol wait in the switch until the port is free. If as many frames wait as the key high
// says, the next frame goes to the ring by a WRITE. From then on all frames go to the ring, until
// it is empty: so frames keep their order. When fewer frames wait in the switch than the key low
// says, the switch READs the oldest entries back. The key depth bounds the READs in flight to each
// server. A READ brings one entry or, if the ring is on one server, as many as fit into 4096 bytes.
// A frame that is longer than an entry takes several entries. At every moment
//
//	Frames = Sent + waiting + remote + Lost + Full + Blocked + Long + Down
//
// Waiting is in the switch and remote is in the ring. The other terms are fields of Stats. Entry i
// of the ring (framering) is in server i modulo the number of servers; an entry whose server cannot
// take a WRITE now is skipped. If no server can, because too many WRITEs are in flight or a
// connection is down, frames wait in the switch until one can, at most as many as the key high
// says. Their bytes, and those of the frames that wait for the port, are bounded by high times
// frameBytes. But one frame always finds room.
//
// If a rule gets another mode, the handler of that mode takes over the rule. The queue of the
// former handler keeps its rate until it is empty. The new handler's queue accepts the new frames,
// but transmits and stores none before the former queue is empty. The switch keeps the former
// connections for 5 s. Frames that have not come back then are lost.
//
// The switch keeps no copies of frames in the ring. Package requester retransmits a WRITE without
// its bytes (SubmitOnce), so later requests stay valid and one frame is lost. The header of an entry
// names the entry's frame: the switch skips an entry with the header of another frame, and counts
// frames whose entries did not come back as Lost. A READ is retransmitted unchanged.
//
// Limits. The memory of the ring must belong to the switch alone: the switch does not notice when
// another writer changes the bytes behind a header. A crash of the switch loses the frames in the
// switch and in the ring. A change of the ring's place or size loses the frames in it.
//
//	rule.go     keys of rules, and where the entries are
//	fifo.go     frames that wait in the switch
//	queue.go    the queue of a port: its rate, and the choice between switch and ring
//	machine.go  the handler: rules, connections
//	channel.go  one connection to a server of the ring
//	info.go     what an operator sees
package packetbuffer

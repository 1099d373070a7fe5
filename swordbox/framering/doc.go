// Package framering keeps frames in a ring of entries in the memory of servers. Handlers of the switch
// use it: packetbuffer for frames that wait for their port, lookuptable for frames that wait for an
// entry of a table.
//
// Contract. Store writes a frame to the next entry, or to several entries if the frame is longer
// than one. Ask reads entries back, in their order, and the user hands each answer to Came. Next
// returns the frames that have come back, in the order of Store. An entry begins with a header that
// names the entry. Next leaves out a frame if one of its entries does not come back; Count and End
// say how many frames are missing. The user calls one method at a time.
//
// Consecutive entries in the memory of one server share a request, as far as its length allows: one
// WRITE carries several parts of one frame, and one READ of whole entries may bring parts of
// different frames. In a ring on several servers, consecutive entries are on different servers.
//
// The package keeps no copy of a stored frame. It makes no connection; a Carrier sends its
// requests. The memory of the ring must belong to the ring alone: the ring does not notice when
// another writer changes the bytes behind a header.
//
//	config.go  where the entries are (package extmem), and who sends requests
//	entry.go   the header of an entry
//	ring.go    the ring
package framering

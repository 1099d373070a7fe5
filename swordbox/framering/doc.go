// Package framering keeps frames in a ring of entries in the memory of servers. Handlers of the switch
// use it: packetbuffer for frames that wait for their port, lookuptable for frames that wait for an
// entry of a table.
//
// Contract. Store writes a frame to the next entry, or to several ones if it is longer. Ask reads
// entries back, in their order, and the user hands each answer to Came. Next returns the frames
// that have come back, in the order of Store. An entry begins with a header that says which one it
// is. A frame is left out if one of its entries does not come back; Count and End say how many are
// missing. The user calls one method at a time.
//
// Entries that follow one another in the memory of one server share a request, as many as it may have
// bytes: the parts of a frame share a WRITE, and any entries a READ that brings whole entries. In a
// ring on several servers no entry follows the one before it.
//
// The package keeps no copy of a stored frame. It makes no connection; a Carrier sends its requests.
// The memory of the ring must belong to the ring alone: another writer that changes the bytes behind
// a header is not noticed.
//
//	config.go  where the entries are (package extmem), and who sends requests
//	entry.go   the header of an entry
//	ring.go    the ring
package framering

package trunk

import "encoding/binary"

// Version is the version of the protocol. Ends of different versions refuse each other's datagrams.
const Version = 2

// Lengths in bytes.
const (
	headerLen = 16
	tagLen    = 16
	// Overhead is what a sealed datagram has beside its content.
	Overhead = headerLen + tagLen
)

// kind is what a datagram has.
type kind uint8

const (
	kindHello kind = 1 + iota // a hello in clear text, with an authentication code
	kindRenew                 // a hello inside of a session, sealed with its key
	kindProbe
	kindData
	kinds
)

// none in header.first means that no record begins in the piece.
const none = 0xffff

// header is the beginning of each datagram. Index, count and first are those of a piece of a train, and
// 0 otherwise.
type header struct {
	version      uint8
	kind         kind
	epoch        uint8
	rack         uint16
	counter      uint64
	index, count uint8
	first        uint16
}

func (h *header) put(b []byte) {
	_ = b[headerLen-1]
	b[0] = h.version<<4 | uint8(h.kind)
	b[1] = h.epoch
	binary.BigEndian.PutUint16(b[2:], h.rack)
	binary.BigEndian.PutUint64(b[4:], h.counter)
	b[12], b[13] = h.index, h.count
	binary.BigEndian.PutUint16(b[14:], h.first)
}

// parseHeader reads the header of a datagram; ok is false if the datagram is too short for one.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < headerLen {
		return h, false
	}
	return header{
		version: b[0] >> 4, kind: kind(b[0] & 0xf), epoch: b[1], rack: binary.BigEndian.Uint16(b[2:]),
		counter: binary.BigEndian.Uint64(b[4:]), index: b[12], count: b[13], first: binary.BigEndian.Uint16(b[14:]),
	}, true
}

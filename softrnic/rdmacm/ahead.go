package rdmacm

import "encoding/binary"

// Two NICs agree on selective retransmission in the private data of REQ and REP of services with a
// name. The last four bytes of the field are
//
//	 0                   2
//	+-------------------+---------------------------------+
//	| mark 0x5e1e       | packets ahead that can be held  |
//	+-------------------+---------------------------------+
//
// A peer that does not know them takes them for the padding behind the application's data, does not
// answer with them, and gets go-back-N. They are left out if the application's data need their place.
const (
	aheadLen  = 4
	aheadMark = 0x5e1e
	maxAhead  = 1<<16 - 1
)

// putAhead writes the offer to hold `ahead` packets into a field of private data whose first `used`
// bytes are in use. It returns false if there is no room, or nothing to offer.
func putAhead(field []byte, used, ahead int) bool {
	if ahead <= 0 || used+aheadLen > len(field) {
		return false
	}
	b := field[len(field)-aheadLen:]
	binary.BigEndian.PutUint16(b, aheadMark)
	binary.BigEndian.PutUint16(b[2:], uint16(min(ahead, maxAhead)))
	return true
}

// aheadOf returns the offer of the peer in a field of private data; 0 if there is none.
func aheadOf(field []byte, used int) int {
	if used+aheadLen > len(field) {
		return 0
	}
	b := field[len(field)-aheadLen:]
	if binary.BigEndian.Uint16(b) != aheadMark {
		return 0
	}
	return int(binary.BigEndian.Uint16(b[2:]))
}

// Bytes in front of the application's data in a REQ and in a REP of a service with a name; see
// cm.Service.
const (
	requestPrefix = 1
	replyPrefix   = 2
)

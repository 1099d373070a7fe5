package trunk

import (
	"crypto/hmac"
	"encoding/binary"
)

// hello is the message of a handshake:
//
//	|  0   |   1   | 2, 3 |  4 to 35   | 36 to 67 | 68 to 75 |
//	| side | epoch |  0   | public key |   echo   |  stamp   |
//
// In clear text it stands behind a header, and its authentication code follows, which covers the
// header; inside of a session it is the content of a sealed datagram.
type hello struct {
	side   Side
	epoch  uint8  // the number that the sender gives the key with which the peer is to seal
	public public // the sender's, of the handshake that it wants
	echo   public // the peer's that the sender has seen; 0: none
	// stamp is later in each hello of an end: the Unix time in nanoseconds of its clock.
	stamp int64
}

// Lengths in bytes, the latter of the whole datagram in clear text.
const (
	helloLen      = 76
	helloDatagram = headerLen + helloLen + codeLen
)

func (m *hello) append(b []byte) []byte {
	b = append(b, byte(m.side), m.epoch, 0, 0)
	b = append(append(b, m.public[:]...), m.echo[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(m.stamp))
}

func parseHello(b []byte) (m hello, ok bool) {
	if len(b) != helloLen || b[0] > byte(Far) {
		return m, false
	}
	return hello{side: Side(b[0]), epoch: b[1], public: public(b[4:36]), echo: public(b[36:68]), stamp: int64(binary.BigEndian.Uint64(b[68:]))}, true
}

// appendHello appends the datagram of a hello in clear text.
func (id *identity) appendHello(b []byte, m *hello) []byte {
	start := len(b)
	h := header{version: Version, kind: kindHello, rack: id.rack}
	b = append(b, make([]byte, headerLen)...)
	h.put(b[start:])
	b = m.append(b)
	return append(b, id.codeOf(b[start:])...)
}

// openHello returns the hello of a datagram in clear text if its code is right.
func (id *identity) openHello(d []byte) (m hello, ok bool) {
	if len(d) != helloDatagram || !hmac.Equal(id.codeOf(d[:headerLen+helloLen]), d[headerLen+helloLen:]) {
		return m, false
	}
	return parseHello(d[headerLen : headerLen+helloLen])
}

package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Message is the body of one message of the communication manager.
type Message interface {
	// Attr returns the kind of the message.
	Attr() Attr
	// Parse parses a body; b has at least bodyLen bytes.
	Parse(b []byte) error
	// AppendTo appends the body, bodyLen bytes.
	AppendTo(b []byte) []byte
}

// newMessage has, for each kind of message, a function that returns an empty one.
var newMessage = map[Attr]func() Message{
	AttrREQ:     func() Message { return new(REQ) },
	AttrMRA:     func() Message { return new(MRA) },
	AttrREJ:     func() Message { return new(REJ) },
	AttrREP:     func() Message { return new(REP) },
	AttrRTU:     func() Message { return new(RTU) },
	AttrDREQ:    func() Message { return new(DREQ) },
	AttrDREP:    func() Message { return new(DREP) },
	AttrSIDRReq: func() Message { return new(SIDRReq) },
	AttrSIDRRep: func() Message { return new(SIDRRep) },
}

// Parse reads a whole datagram of the communication manager. If b is too short, the error is a
// *wire.FormatError. If b is another kind of MAD, or an unknown message, the error wraps ErrNotCM,
// and h is valid.
func Parse(b []byte, h *Header) (Message, error) {
	if err := need(b, Size, "MAD"); err != nil {
		return nil, err
	}
	if err := h.Parse(b); err != nil {
		return nil, err
	}
	if !h.IsCM() {
		return nil, fmt.Errorf("%w: class %#02x version %d method %#02x", ErrNotCM, h.Class, h.ClassVersion, h.Method)
	}
	empty := newMessage[h.Attr]
	if empty == nil {
		return nil, fmt.Errorf("%w: %v", ErrNotCM, h.Attr)
	}
	m := empty()
	return m, m.Parse(b[HeaderLen:Size])
}

// Append appends a whole datagram, Size bytes.
func Append(b []byte, tid uint64, m Message) []byte {
	h := Header{BaseVersion: baseVersion, Class: classCM, ClassVersion: classCMVersion, Method: methodSend, TID: tid, Attr: m.Attr()}
	return m.AppendTo(h.AppendTo(b))
}

// need returns a FormatError if b is shorter than n bytes.
func need(b []byte, n int, header string) error {
	if len(b) < n {
		return &wire.FormatError{Header: header, Reason: wire.ErrTruncated, Got: len(b), Want: n}
	}
	return nil
}

// be32 and the other functions be… read a big-endian number at offset `off`. The functions put…
// append one; put24 appends a 24-bit number and the byte `low` behind it.
func be32(b []byte, off int) uint32 { return binary.BigEndian.Uint32(b[off:]) }
func be64(b []byte, off int) uint64 { return binary.BigEndian.Uint64(b[off:]) }
func be16(b []byte, off int) uint16 { return binary.BigEndian.Uint16(b[off:]) }
func be24(b []byte, off int) uint32 { return be32(b, off) >> 8 }

func put24(b []byte, v uint32, low uint8) []byte {
	return binary.BigEndian.AppendUint32(b, v<<8|uint32(low))
}
func put16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func put32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func put64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

// Masks of the narrow fields.
const (
	mask2  = 1<<2 - 1
	mask3  = 1<<3 - 1
	mask4  = 1<<4 - 1
	mask5  = 1<<5 - 1
	mask6  = 1<<6 - 1
	mask7  = 1<<7 - 1
	mask20 = 1<<20 - 1
)

func bit(set bool, mask uint8) uint8 {
	if set {
		return mask
	}
	return 0
}

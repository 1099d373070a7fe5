package onerma

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+---------------+---------------+
//	|  version (1)  |     kind      |   operation   |     class     |
//	+---------------+---------------+---------------+---------------+
//	|             slot              |              at               |
//	+-------------------------------+-------------------------------+
//	|                          generation                           |
//	+---------------------------------------------------------------+
//	|                            region                             |
//	+---------------------------------------------------------------+
//	|                            offset                             |
//	+                                                               +
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                            length                             |
//	+---------------------------------------------------------------+
//	|                              PID                              |
//	+---------------------------------------------------------------+
//	|                            counter                            |
//	+                                                               +
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                            ticket                             |
//	+---------------------------------------------------------------+

// Sizes in bytes.
const (
	HeaderLen = 44
	TagLen    = 16
	// MaxOp is the length of the largest operation.
	MaxOp = 4096
	// Unit is the length of the pieces into which data messages divide an operation; an operation
	// has at most 64 of them. Each data message begins at a multiple of Unit, and ends at a
	// multiple or at the end of the operation.
	Unit = 64
	// KeyLen is the length of the data of a REKEY, which is the new key.
	KeyLen = 16
	// PullLen is the length of the body of a pull: the target's timeout in nanoseconds.
	PullLen = 4
	// Classes is the number of classes of service.
	Classes = 2

	version = 1
)

// Kind is the role of a message in its operation.
type Kind uint8

// Kinds of messages. Request begins every operation. With a Pull the target of a WRITE or REKEY
// asks for the data. Done is the target's last answer. With Nack and AuthFail a target refuses an
// operation.
const (
	Request Kind = 1 + iota
	Pull
	Data
	Done
	Nack
	AuthFail
)

// Op is an operation of an initiator on a region of a target.
type Op uint8

// Operations. Rekey replaces the key of a region.
const (
	Read Op = 1 + iota
	Write
	Rekey
)

// Header is the unencrypted part of a message. It is authenticated together with the body.
type Header struct {
	Kind  Kind
	Op    Op
	Class uint8 // class of service: class 0 is preferred to class 1
	// Slot and Generation name the initiator's command. All messages of the operation carry them.
	Slot       uint16
	Generation uint32
	// At is the offset of a data message's body in the operation, in bytes; 0 in other messages.
	At uint16
	// Region, Offset and Length name the target's memory. All messages of the operation carry them.
	Region uint32
	Offset uint64
	Length uint32
	// PID is the PID of the initiator's process.
	PID uint32
	// Counter differs in all messages that a NIC ever sends: the upper 24 bits are the number of
	// the NIC's incarnation, the lower 40 count the messages of this incarnation.
	Counter uint64
	// Ticket is the number that the target has given to a WRITE or REKEY. The pull and all later
	// messages of the operation carry it; in other messages it is 0.
	Ticket uint32
}

// Parse reads the header at the start of b, and checks its form and the length of b. b is a whole
// UDP payload. The error is a *FormatError.
func (h *Header) Parse(b []byte) error {
	if len(b) < HeaderLen+TagLen {
		return &FormatError{"message", "bytes", uint64(len(b))}
	}
	if b[0] != version {
		return &FormatError{"message", "version", uint64(b[0])}
	}
	*h = Header{
		Kind: Kind(b[1]), Op: Op(b[2]), Class: b[3],
		Slot: binary.BigEndian.Uint16(b[4:]), At: binary.BigEndian.Uint16(b[6:]),
		Generation: binary.BigEndian.Uint32(b[8:]), Region: binary.BigEndian.Uint32(b[12:]),
		Offset: binary.BigEndian.Uint64(b[16:]), Length: binary.BigEndian.Uint32(b[24:]),
		PID: binary.BigEndian.Uint32(b[28:]), Counter: binary.BigEndian.Uint64(b[32:]), Ticket: binary.BigEndian.Uint32(b[40:]),
	}
	return h.check(len(b) - HeaderLen - TagLen)
}

func (h *Header) AppendTo(b []byte) []byte {
	b = append(b, version, byte(h.Kind), byte(h.Op), h.Class)
	b = binary.BigEndian.AppendUint16(b, h.Slot)
	b = binary.BigEndian.AppendUint16(b, h.At)
	b = binary.BigEndian.AppendUint32(b, h.Generation)
	b = binary.BigEndian.AppendUint32(b, h.Region)
	b = binary.BigEndian.AppendUint64(b, h.Offset)
	b = binary.BigEndian.AppendUint32(b, h.Length)
	b = binary.BigEndian.AppendUint32(b, h.PID)
	b = binary.BigEndian.AppendUint64(b, h.Counter)
	return binary.BigEndian.AppendUint32(b, h.Ticket)
}

// check returns an error if the header does not fit a message with a body of n bytes.
func (h *Header) check(n int) error {
	switch {
	case h.Kind < Request || h.Kind > AuthFail:
		return &FormatError{"message", "kind", uint64(h.Kind)}
	case h.Op < Read || h.Op > Rekey || h.Op == Read && (h.Kind == Pull || h.Kind == Done):
		return &FormatError{h.Kind.String(), "operation", uint64(h.Op)}
	case h.Class >= Classes:
		return &FormatError{h.Kind.String(), "class", uint64(h.Class)}
	case h.Length == 0 || h.Length > MaxOp || h.Op == Rekey && h.Length != KeyLen:
		return &FormatError{h.Kind.String(), "length", uint64(h.Length)}
	case h.Kind != Data && h.At != 0:
		return &FormatError{h.Kind.String(), "at", uint64(h.At)}
	}
	return h.checkBody(n)
}

// checkBody checks the length of a body, and the place of data in the operation.
func (h *Header) checkBody(n int) error {
	wrong := false
	switch h.Kind {
	case Data:
		end := int(h.At) + n
		wrong = h.At%Unit != 0 || n == 0 || end > int(h.Length) || end%Unit != 0 && end != int(h.Length)
	case Pull:
		wrong = n != PullLen
	case Request, Done, Nack, AuthFail:
		wrong = n != 0
	}
	if wrong {
		return &FormatError{h.Kind.String(), "body", uint64(n)}
	}
	return nil
}

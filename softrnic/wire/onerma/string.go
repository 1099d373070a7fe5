package onerma

import "fmt"

// FormatError says which field of a message is wrong.
type FormatError struct {
	Message, Field string
	Got            uint64
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("ONERMA %s: wrong %s: %d", e.Message, e.Field, e.Got)
}

var kindNames = [...]string{Request: "request", Pull: "pull", Data: "data", Done: "done", Nack: "nack", AuthFail: "authfail"}

func (k Kind) String() string {
	if int(k) < len(kindNames) && k >= Request {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

var opNames = [...]string{Read: "READ", Write: "WRITE", Rekey: "REKEY"}

func (o Op) String() string {
	if int(o) < len(opNames) && o >= Read {
		return opNames[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

func (h *Header) String() string {
	text := fmt.Sprintf("%v %v slot=%d/%d region=%d offset=%d length=%d pid=%d class=%d counter=%#x",
		h.Op, h.Kind, h.Slot, h.Generation, h.Region, h.Offset, h.Length, h.PID, h.Class, h.Counter)
	if h.Kind == Data {
		text += fmt.Sprintf(" at=%d", h.At)
	}
	if h.Ticket != 0 {
		text += fmt.Sprintf(" ticket=%#x", h.Ticket)
	}
	return text
}

package wire

import (
	"errors"
	"fmt"
)

// ErrNotRoCE means that a frame is not an IP datagram to UDP port 4791; this package does not parse
// such frames.
var ErrNotRoCE = errors.New("not a RoCEv2 frame")

// Reasons of a FormatError.
var (
	// ErrTruncated: there are fewer bytes than the header needs.
	ErrTruncated = errors.New("truncated")
	// ErrLength: a length field contradicts another length field or the length of the frame.
	ErrLength = errors.New("inconsistent length")
	// ErrChecksum: the IPv4 header checksum is wrong.
	ErrChecksum = errors.New("wrong checksum")
	// ErrFragment: the datagram is an IP fragment, which RoCEv2 does not allow (A17).
	ErrFragment = errors.New("fragment")
	// ErrOptions: the IPv4 header has options, which this package does not support.
	ErrOptions = errors.New("options are not supported: bytes of header")
	// ErrVersion: the IP version does not match the EtherType.
	ErrVersion = errors.New("wrong version")
	// ErrPad: the pad count is larger than payload and pad together.
	ErrPad = errors.New("pad count beyond the packet")
	// ErrAlign: the length of payload and pad together is not a multiple of 4 bytes (IBTA 9.2).
	ErrAlign = errors.New("payload and pad not a multiple of 4 bytes")
	// ErrPayload: the packet has a payload, but its opcode allows none.
	ErrPayload = errors.New("payload where none belongs")
)

// FormatError says why a RoCEv2 frame is malformed. It wraps one of the errors above.
type FormatError struct {
	// Header is the header that is wrong, for example "IPv4" or "BTH".
	Header string
	// Reason is one of the errors above.
	Reason error
	// Got and Want are the number that was found and the one that was expected: bytes, checksums or
	// counts, depending on Reason.
	Got, Want int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("malformed %s: %v: %d, want %d", e.Header, e.Reason, e.Got, e.Want)
}

func (e *FormatError) Unwrap() error { return e.Reason }

// need returns a FormatError if b is shorter than n bytes, the length of the header with this name.
func need(b []byte, n int, header string) error {
	if len(b) < n {
		return &FormatError{Header: header, Reason: ErrTruncated, Got: len(b), Want: n}
	}
	return nil
}

package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+---------------+---------------------------------------+
//	|   6   | traffic class |              flow label               |
//	+-------+---------------+-------+---------------+---------------+
//	|        payload length         |  next header  |   hop limit   |
//	+-------------------------------+---------------+---------------+
//	|                   source address (16 bytes)                   |
//	+---------------------------------------------------------------+
//	|                 destination address (16 bytes)                |
//	+---------------------------------------------------------------+

const (
	ipv6Len       = 40
	flowLabelMask = 1<<20 - 1
)

// IPv6 is the fixed IPv6 header. Extension headers are not parsed.
type IPv6 struct {
	TrafficClass uint8  // DSCP and ECN
	FlowLabel    uint32 // 20 bits
	NextHeader   uint8
	HopLimit     uint8
	Src, Dst     [16]byte

	// PayloadLen is the number of bytes after the header, set by Parse. AppendTo ignores it and
	// uses the length of the payload.
	PayloadLen uint16
}

// Parse reads the header at the start of b. A payload length that is longer than b is an error.
func (h *IPv6) Parse(b []byte) error {
	if err := need(b, ipv6Len, "IPv6"); err != nil {
		return err
	}
	first := binary.BigEndian.Uint32(b)
	if v := first >> 28; v != 6 {
		return &FormatError{Header: "IPv6", Reason: ErrVersion, Got: int(v), Want: 6}
	}
	n := binary.BigEndian.Uint16(b[4:])
	if int(n) > len(b)-ipv6Len {
		return &FormatError{Header: "IPv6", Reason: ErrLength, Got: int(n), Want: len(b) - ipv6Len}
	}
	h.TrafficClass, h.FlowLabel, h.PayloadLen = uint8(first>>20), first&flowLabelMask, n
	h.NextHeader, h.HopLimit = b[6], b[7]
	h.Src, h.Dst = [16]byte(b[8:]), [16]byte(b[24:])
	return nil
}

// AppendTo appends the header. payload is the number of bytes behind the header.
func (h *IPv6) AppendTo(b []byte, payload int) []byte { return h.appendAs(b, h.NextHeader, payload) }

// appendAs does the work of AppendTo with next header protocol instead of h.NextHeader.
func (h *IPv6) appendAs(b []byte, protocol uint8, payload int) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.TrafficClass)<<20|h.FlowLabel&flowLabelMask)
	b = append(b, byte(payload>>8), byte(payload), protocol, h.HopLimit)
	b = append(b, h.Src[:]...)
	return append(b, h.Dst[:]...)
}

func (h *IPv6) Len() int { return ipv6Len }

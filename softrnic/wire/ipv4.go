package wire

import "encoding/binary"

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+-------+-----------+---+-------------------------------+
//	|   4   |  IHL  |   DSCP    |ECN|         total length          |
//	+-------+-------+-----------+---+-+-+-+-------------------------+
//	|        identification         |0|D|M|     fragment offset     |
//	+---------------+---------------+-+-+-+-------------------------+
//	|      TTL      |   protocol    |        header checksum        |
//	+---------------+---------------+-------------------------------+
//	|                        source address                         |
//	+---------------------------------------------------------------+
//	|                      destination address                      |
//	+---------------------------------------------------------------+

const (
	ipv4Len = 20

	ipv4Reserved = 0x8000
	ipv4DF       = 0x4000
	ipv4MF       = 0x2000
	ipv4Offset   = 0x1fff
)

// ProtocolUDP is the IPv4 protocol and IPv6 next header of UDP.
const ProtocolUDP = 17

// IPv4 is an IPv4 header without options. Parse keeps ID and flags, because the ICRC covers them.
type IPv4 struct {
	TOS      uint8 // DSCP and ECN
	ID       uint16
	Reserved bool // the reserved flag, 0 by RFC 791
	DF       bool // don't fragment
	TTL      uint8
	Protocol uint8
	Src, Dst [4]byte

	// TotalLen is the length of header and payload in bytes, set by Parse. AppendTo ignores it and
	// uses the length of the payload.
	TotalLen uint16
}

// Parse reads the header at the start of b. Options, fragments, a wrong checksum and a total length
// that is shorter than the header or longer than b are errors.
func (h *IPv4) Parse(b []byte) error {
	if err := need(b, ipv4Len, "IPv4"); err != nil {
		return err
	}
	if v := b[0] >> 4; v != 4 {
		return &FormatError{Header: "IPv4", Reason: ErrVersion, Got: int(v), Want: 4}
	}
	if n := int(b[0]&0xf) * 4; n != ipv4Len {
		return &FormatError{Header: "IPv4", Reason: ErrOptions, Got: n, Want: ipv4Len}
	}
	if sum := checksum(b[:ipv4Len]); sum != 0 {
		want := checksum(b[:10], b[12:ipv4Len])
		return &FormatError{Header: "IPv4", Reason: ErrChecksum, Got: int(b[10])<<8 | int(b[11]), Want: int(want)}
	}
	flags := binary.BigEndian.Uint16(b[6:])
	if flags&(ipv4MF|ipv4Offset) != 0 {
		return &FormatError{Header: "IPv4", Reason: ErrFragment, Got: int(flags & (ipv4MF | ipv4Offset))}
	}
	total := binary.BigEndian.Uint16(b[2:])
	if int(total) < ipv4Len || int(total) > len(b) {
		return &FormatError{Header: "IPv4", Reason: ErrLength, Got: int(total), Want: len(b)}
	}
	h.TOS, h.TotalLen, h.ID = b[1], total, binary.BigEndian.Uint16(b[4:])
	h.Reserved, h.DF = flags&ipv4Reserved != 0, flags&ipv4DF != 0
	h.TTL, h.Protocol = b[8], b[9]
	h.Src, h.Dst = [4]byte(b[12:]), [4]byte(b[16:])
	return nil
}

// AppendTo appends the header with its checksum. payload is the number of bytes behind the header.
func (h *IPv4) AppendTo(b []byte, payload int) []byte { return h.appendAs(b, h.Protocol, payload) }

// appendAs does the work of AppendTo with protocol instead of h.Protocol.
func (h *IPv4) appendAs(b []byte, protocol uint8, payload int) []byte {
	flags := uint32(0)
	if h.Reserved {
		flags |= ipv4Reserved
	}
	if h.DF {
		flags |= ipv4DF
	}
	first := 4<<28 | ipv4Len/4<<24 | uint32(h.TOS)<<16 | uint32(uint16(ipv4Len+payload))
	second := uint32(h.ID)<<16 | flags
	third := uint32(h.TTL)<<24 | uint32(protocol)<<16
	src, dst := binary.BigEndian.Uint32(h.Src[:]), binary.BigEndian.Uint32(h.Dst[:])
	third |= uint32(fold(uint64(first) + uint64(second) + uint64(third) + uint64(src) + uint64(dst)))
	b = binary.BigEndian.AppendUint32(b, first)
	b = binary.BigEndian.AppendUint32(b, second)
	b = binary.BigEndian.AppendUint32(b, third)
	b = binary.BigEndian.AppendUint32(b, src)
	return binary.BigEndian.AppendUint32(b, dst)
}

func (h *IPv4) Len() int { return ipv4Len }

// checksum returns the Internet checksum (RFC 1071) of parts, each of which has an even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint64
	for _, p := range parts {
		for ; len(p) >= 4; p = p[4:] {
			sum += uint64(binary.BigEndian.Uint32(p))
		}
		if len(p) >= 2 {
			sum += uint64(binary.BigEndian.Uint16(p))
		}
	}
	return fold(sum)
}

// fold returns the Internet checksum of 16-bit or 32-bit words with the given sum.
func fold(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

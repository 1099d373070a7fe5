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

// IPv4 is a header without options. ID and flags are kept as received, because the ICRC covers
// them.
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
	*h = IPv4{
		TOS: b[1], TotalLen: total, ID: binary.BigEndian.Uint16(b[4:]),
		Reserved: flags&ipv4Reserved != 0, DF: flags&ipv4DF != 0,
		TTL: b[8], Protocol: b[9], Src: [4]byte(b[12:16]), Dst: [4]byte(b[16:20]),
	}
	return nil
}

// AppendTo appends the header of a datagram with payload bytes behind it, with its checksum.
func (h *IPv4) AppendTo(b []byte, payload int) []byte {
	total, flags := uint16(ipv4Len+payload), uint16(0)
	if h.Reserved {
		flags |= ipv4Reserved
	}
	if h.DF {
		flags |= ipv4DF
	}
	b = append(b, 4<<4|ipv4Len/4, h.TOS, byte(total>>8), byte(total),
		byte(h.ID>>8), byte(h.ID), byte(flags>>8), byte(flags),
		h.TTL, h.Protocol, 0, 0)
	b = append(b, h.Src[:]...)
	b = append(b, h.Dst[:]...)
	head := b[len(b)-ipv4Len:]
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	return b
}

// Len returns 20.
func (h *IPv4) Len() int { return ipv4Len }

// checksum returns the Internet checksum (RFC 1071) over parts of even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for ; len(p) >= 2; p = p[2:] {
			sum += uint32(p[0])<<8 | uint32(p[1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

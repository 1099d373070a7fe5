package wire

import (
	"encoding/binary"
	"net/netip"
)

// Frame is a whole RoCEv2 frame.
type Frame struct {
	Eth Ethernet
	// V6: the IP header of the frame is the field IPv6; otherwise it is the field IPv4.
	V6   bool
	IPv4 IPv4
	IPv6 IPv6
	UDP  UDP
	Packet
	// ICRC is the invariant CRC, which ParseFrame sets. In the frame its bytes are in little-endian
	// order. AppendTo ignores it and computes the ICRC.
	ICRC uint32
}

func (f *Frame) SrcAddr() netip.Addr {
	if f.V6 {
		return netip.AddrFrom16(f.IPv6.Src)
	}
	return netip.AddrFrom4(f.IPv4.Src)
}

func (f *Frame) DstAddr() netip.Addr {
	if f.V6 {
		return netip.AddrFrom16(f.IPv6.Dst)
	}
	return netip.AddrFrom4(f.IPv4.Dst)
}

// ParseFrame parses a frame without FCS into f and overwrites all fields of f; f.Payload points
// into b. Ethernet padding behind the IP datagram is ignored. The error is ErrNotRoCE or a
// *FormatError; then f has the fields that were parsed before the error. The ICRC is not checked;
// see CheckICRC.
func ParseFrame(b []byte, f *Frame) error {
	*f = Frame{}
	if _, _, ok := locate(b); !ok {
		return ErrNotRoCE
	}
	if err := f.Eth.Parse(b); err != nil {
		return err
	}
	datagram, err := f.parseIP(b[f.Eth.Len():])
	if err != nil {
		return err
	}
	if err := f.UDP.Parse(datagram); err != nil {
		return err
	}
	b = datagram[udpLen:]
	if err := need(b, bthLen+icrcLen, "BTH"); err != nil {
		return err
	}
	end := len(b) - icrcLen
	f.ICRC = binary.LittleEndian.Uint32(b[end:])
	return f.parse(b[:end:end])
}

// parseIP parses the IP header at the start of b and returns its payload, without Ethernet padding.
func (f *Frame) parseIP(b []byte) ([]byte, error) {
	if f.Eth.Type == EtherTypeIPv6 {
		f.V6 = true
		if err := f.IPv6.Parse(b); err != nil {
			return nil, err
		}
		return b[ipv6Len : ipv6Len+int(f.IPv6.PayloadLen)], nil
	}
	if err := f.IPv4.Parse(b); err != nil {
		return nil, err
	}
	return b[ipv4Len:f.IPv4.TotalLen], nil
}

// AppendTo appends the frame to b. It computes all lengths, the IPv4 checksum, pad and ICRC.
// EtherType, IP protocol and UDP destination port are always those of RoCEv2; AppendTo ignores the
// values in f. It allocates only if b has no room for Len more bytes.
func (f *Frame) AppendTo(b []byte) []byte {
	start := len(b)
	b = f.appendOpen(b, &f.Packet)
	return binary.LittleEndian.AppendUint32(b, icrc(b[start+f.Eth.Len():], f.V6))
}

// appendOpen appends the frame without its ICRC, with packet p instead of the frame's own.
func (f *Frame) appendOpen(b []byte, p *Packet) []byte {
	packet := p.Len() + icrcLen
	if f.V6 {
		b = f.IPv6.appendAs(f.Eth.appendAs(b, EtherTypeIPv6), ProtocolUDP, udpLen+packet)
	} else {
		b = f.IPv4.appendAs(f.Eth.appendAs(b, EtherTypeIPv4), ProtocolUDP, udpLen+packet)
	}
	return p.AppendTo(f.UDP.appendAs(b, UDPPort, packet))
}

func (f *Frame) Len() int { return f.LenWith(&f.Packet) }

// LenWith returns the length of the frame with packet p instead of the frame's own.
func (f *Frame) LenWith(p *Packet) int {
	return f.Eth.Len() + f.ipLen() + udpLen + p.Len() + icrcLen
}

func (f *Frame) ipLen() int {
	if f.V6 {
		return ipv6Len
	}
	return ipv4Len
}

// IsRoCE reports whether b is a RoCEv2 packet or super-frame, well-formed or not: an IP datagram to
// UDP port 4791 that is complete or the first fragment.
func IsRoCE(b []byte) bool {
	_, _, ok := locate(b)
	return ok
}

// locate finds the IP header of a RoCEv2 frame: ip is its offset, and ok reports whether b is an IP
// datagram to UDP port 4791. It checks nothing else, so that all other errors of such a datagram
// are reported as FormatError instead of ErrNotRoCE. Later IP fragments have no UDP header and are
// not recognised.
func locate(b []byte) (ip int, v6, ok bool) {
	h, etherType := ipHeader(b)
	if len(h) < ipv4Len {
		return 0, false, false
	}
	var protocol byte
	var ipLen int
	switch {
	case etherType == EtherTypeIPv4:
		if binary.BigEndian.Uint16(h[6:])&ipv4Offset != 0 {
			return 0, false, false
		}
		protocol, ipLen = h[9], int(h[0]&0xf)*4
	case etherType == EtherTypeIPv6 && len(h) >= ipv6Len:
		protocol, ipLen, v6 = h[6], ipv6Len, true
	default:
		return 0, false, false
	}
	ok = protocol == ProtocolUDP && len(h) >= ipLen+4 && binary.BigEndian.Uint16(h[ipLen+2:]) == UDPPort
	return len(b) - len(h), v6, ok
}

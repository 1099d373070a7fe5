package wire

import (
	"encoding/binary"
	"math/bits"
)

// DamagedIP reports whether b is an IPv4 or IPv6 frame whose IP header is damaged: the IP version
// does not match the EtherType, or the length or the checksum of an IPv4 header is wrong. An IPv6
// header has no checksum.
func DamagedIP(b []byte) bool {
	h, etherType := ipHeader(b)
	if len(h) == 0 {
		return false
	}
	switch n := int(h[0]&0xf) * 4; etherType {
	case EtherTypeIPv4:
		return h[0]>>4 != 4 || n < ipv4Len || n > len(h) || checksum(h[:n]) != 0
	case EtherTypeIPv6:
		return h[0]>>4 != 6
	}
	return false
}

// Unhidden looks for a single bit that must be inverted to make b a RoCEv2 packet or super-frame.
// It tries the UDP destination port, the next header of IPv6, and the first byte of the IPv4
// header, which has the version and the length. A wrong bit elsewhere in an IPv4 header is found by
// the header's checksum (see DamagedIP), but with a wrong length the checksum covers other bytes.
// If there is such a bit, Unhidden returns a copy of b with this bit inverted. The copy is in
// scratch, which may grow. Its ICRC shows whether the bit was wrong. Otherwise Unhidden returns
// scratch unchanged.
func Unhidden(b, scratch []byte) (found bool, next []byte) {
	h, etherType := ipHeader(b)
	at := -1 // offset of the byte with the wrong bit
	var right byte
	switch {
	case etherType == EtherTypeIPv4 && len(h) >= ipv4Len+udpLen && h[0] == 0x45 && h[9] == ProtocolUDP:
		at, right = wrongPort(h, ipv4Len)
	case etherType == EtherTypeIPv4 && len(h) >= ipv4Len+udpLen && h[9] == ProtocolUDP && binary.BigEndian.Uint16(h[ipv4Len+2:]) == UDPPort:
		at, right = 0, 0x45
	case etherType == EtherTypeIPv6 && len(h) >= ipv6Len+udpLen && h[6] == ProtocolUDP:
		at, right = wrongPort(h, ipv6Len)
	case etherType == EtherTypeIPv6 && len(h) >= ipv6Len+udpLen && binary.BigEndian.Uint16(h[ipv6Len+2:]) == UDPPort:
		at, right = 6, ProtocolUDP
	}
	if at < 0 || bits.OnesCount8(h[at]^right) != 1 {
		return false, scratch
	}
	scratch = append(scratch[:0], b...)
	scratch[len(b)-len(h)+at] = right
	return true, scratch
}

// wrongPort compares the destination port of the UDP header at offset `udp` of h with that of
// RoCEv2. If exactly one byte differs, it returns the offset of this byte in h and the right byte;
// otherwise `at` is −1.
func wrongPort(h []byte, udp int) (at int, right byte) {
	const high, low = UDPPort >> 8, UDPPort & 0xff
	switch p := h[udp+2 : udp+4]; {
	case p[0] != high && p[1] == low:
		return udp + 2, high
	case p[0] == high && p[1] != low:
		return udp + 3, low
	}
	return -1, 0
}

// ipHeader returns the part of b that begins with the IP header, and the EtherType. The result is
// empty if b ends before the IP header.
func ipHeader(b []byte) (h []byte, etherType uint16) {
	ip := ethernetLen
	if len(b) >= ip+vlanTagLen && binary.BigEndian.Uint16(b[12:]) == EtherTypeVLAN {
		ip += vlanTagLen
	}
	if len(b) <= ip {
		return nil, 0
	}
	return b[ip:], binary.BigEndian.Uint16(b[ip-2:])
}

package lookuptable

import (
	"encoding/binary"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Numbers of IP protocols. TCP and UDP have ports. The checksums of TCP, UDP and ICMPv6 cover the
// IP addresses; that of ICMP does not.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// Key is what an entry must have in common with a frame: addresses, ports and protocol, or the
// destination's address alone. IPv4 addresses are in the first four bytes. Mask is the number of the
// mask of an entry under match=ternary, from 1 on: its other fields have only bits of this mask.
type Key struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	Proto            uint8
	V6               bool
	Mask             uint8
}

// Hash returns a hash of the key. It decides the server and the home slot of the key's entry.
func (k *Key) Hash() uint64 {
	be := binary.BigEndian
	h := uint64(0x9e3779b97f4a7c15)
	mix := func(x uint64) {
		h = (h ^ x) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	mix(be.Uint64(k.Src[:]))
	mix(be.Uint64(k.Dst[:]))
	if k.V6 {
		mix(be.Uint64(k.Src[8:]))
		mix(be.Uint64(k.Dst[8:]))
	}
	mix(uint64(k.Mask)<<48 | uint64(k.SrcPort)<<32 | uint64(k.DstPort)<<16 | uint64(k.Proto)<<8 | 1)
	return h ^ h>>29
}

// view says where the headers of a frame are.
type view struct {
	ip, l4 int // offsets from the frame's start
	v6     bool
	proto  uint8
	// ports is true if the header of TCP or UDP follows at l4.
	ports bool
	// inner is true if the transport header follows at l4; it is false for a later fragment.
	inner bool
}

// Lengths of headers.
const (
	ethLen  = 14
	tagLen  = 4
	ip4Len  = 20
	ip4Max  = 60
	ip6Len  = 40
	udpLen  = 8
	tcpLen  = 20
	icmpLen = 8
)

// parse reads the headers of a frame. ok is false if the frame has no complete IP header.
func (v *view) parse(b []byte) (ok bool) {
	be := binary.BigEndian
	if len(b) < ethLen+tagLen {
		return false
	}
	*v = view{ip: ethLen}
	kind := be.Uint16(b[12:])
	if kind == wire.EtherTypeVLAN {
		v.ip, kind = ethLen+tagLen, be.Uint16(b[16:])
	}
	if kind != wire.EtherTypeIPv4 && kind != wire.EtherTypeIPv6 || !v.parseIP(b, kind == wire.EtherTypeIPv6) {
		return false
	}
	n := len(b) - v.l4
	v.ports = v.inner && (v.proto == protoTCP && n >= tcpLen || v.proto == protoUDP && n >= udpLen)
	return true
}

// parseIP reads an IP header at v.ip. ok is false if it is not complete.
func (v *view) parseIP(b []byte, v6 bool) (ok bool) {
	v.inner, v.v6 = true, v6
	switch ip := b[v.ip:]; {
	case !v6 && len(ip) >= ip4Len && ip[0]>>4 == 4:
		n := int(ip[0]&0xf) * 4
		if n < ip4Len || len(ip) < n {
			return false
		}
		v.proto, v.l4 = ip[9], v.ip+n
		v.inner = binary.BigEndian.Uint16(ip[6:])&0x1fff == 0
	case v6 && len(ip) >= ip6Len && ip[0]>>4 == 6:
		v.proto, v.l4 = ip[6], v.ip+ip6Len
	default:
		return false
	}
	return true
}

// key returns the key of a frame. If flow is false, the key is the destination's address alone. The
// flow of an ICMP error is the reverse of the flow of the packet that it quotes.
func (v *view) key(b []byte, flow bool) (k Key) {
	var q quote
	if flow && v.parseQuote(b, &q) {
		return q.keyOfQuote(b)
	}
	src, dst := v.addrs(b)
	copy(k.Dst[:], dst)
	if k.V6 = v.v6; !flow {
		return k
	}
	copy(k.Src[:], src)
	k.Proto = v.proto
	if v.ports {
		k.SrcPort, k.DstPort = binary.BigEndian.Uint16(b[v.l4:]), binary.BigEndian.Uint16(b[v.l4+2:])
	}
	return k
}

// addrs returns the source and the destination address of frame b, as slices of b.
func (v *view) addrs(b []byte) (src, dst []byte) {
	if v.v6 {
		return b[v.ip+8 : v.ip+24], b[v.ip+24 : v.ip+40]
	}
	return b[v.ip+12 : v.ip+16], b[v.ip+16 : v.ip+20]
}

// sumAt returns the offset of the checksum behind the IP header; 0 means that there is none, or it
// does not cover addresses and ports.
func (v *view) sumAt(b []byte) int {
	n := len(b) - v.l4
	switch {
	case !v.inner:
		return 0
	case v.proto == protoTCP && n >= tcpLen:
		return v.l4 + 16
	case v.proto == protoUDP && n >= udpLen:
		return v.l4 + 6
	case v.v6 && v.proto == protoICMPv6 && n >= icmpLen:
		return v.l4 + 2
	}
	return 0
}

// bytesOf returns an address in the form of the addresses in a Key.
func bytesOf(a netip.Addr) (b [16]byte) {
	if a = a.Unmap(); a.Is4() {
		x := a.As4()
		copy(b[:], x[:])
		return b
	}
	return a.As16()
}

// addrOf returns the IP address for an address in the form of those in a Key.
func addrOf(b [16]byte, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:]))
}

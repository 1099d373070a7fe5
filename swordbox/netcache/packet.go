package netcache

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Lengths of headers, and numbers of protocols.
const (
	ethLen  = 14
	tagLen  = 4
	ip4Len  = 20
	ip6Len  = 40
	udpLen  = 8
	portLen = 4 // the ports at the front of UDP and TCP

	protoTCP  = 6
	protoUDP  = 17
	protoICMP = 58 // of IPv6
)

// packet says where the headers of a frame are, and what they say.
type packet struct {
	ip, l4   int
	v6       bool
	vlan     uint64 // the numbers of the frame's VLANs, 12 bits each, the outermost one first; 0 if it has no tag
	proto    uint8
	src, dst [16]byte
	// ports is true if the headers of UDP or TCP follow at l4. later is true for a later fragment of a packet,
	// which has no such headers.
	ports, later     bool
	srcPort, dstPort uint16
	// payload is that of a whole UDP packet; nil if the frame has none.
	payload []byte
}

// parse reads the headers of a frame. ok is false if it has no IP packet.
func (p *packet) parse(b []byte) (ok bool) {
	be := binary.BigEndian
	if len(b) < ethLen+tagLen {
		return false
	}
	*p = packet{ip: ethLen}
	kind := be.Uint16(b[12:])
	for tagged(kind) && len(b) >= p.ip+tagLen {
		p.vlan = p.vlan<<12 | uint64(be.Uint16(b[p.ip:])&0xfff)
		p.ip, kind = p.ip+tagLen, be.Uint16(b[p.ip+2:])
	}
	end, whole := len(b), true
	switch ip := b[p.ip:]; {
	case kind == wire.EtherTypeIPv4 && len(ip) >= ip4Len && ip[0]>>4 == 4:
		n, frag := int(ip[0]&0xf)*4, be.Uint16(ip[6:])
		if n < ip4Len || len(ip) < n {
			return false
		}
		p.l4, p.proto, p.later, whole = p.ip+n, ip[9], frag&0x1fff != 0, frag&0x3fff == 0
		copy(p.src[:], ip[12:16])
		copy(p.dst[:], ip[16:20])
		end = min(end, p.ip+int(be.Uint16(ip[2:])))
	case kind == wire.EtherTypeIPv6 && len(ip) >= ip6Len && ip[0]>>4 == 6:
		p.v6, p.l4, p.proto = true, p.ip+ip6Len, ip[6]
		copy(p.src[:], ip[8:24])
		copy(p.dst[:], ip[24:40])
		end = min(end, p.l4+int(be.Uint16(ip[4:])))
	default:
		return false
	}
	if p.later || end < p.l4+portLen || p.proto != protoTCP && p.proto != protoUDP {
		return true
	}
	p.ports, p.srcPort, p.dstPort = true, be.Uint16(b[p.l4:]), be.Uint16(b[p.l4+2:])
	if n := p.l4 + udpLen; p.proto == protoUDP && whole && end >= n && int(be.Uint16(b[p.l4+4:])) == end-p.l4 {
		p.payload = b[n:end]
	}
	return true
}

// tagged reports whether a tag of a VLAN follows this EtherType: of a customer, of a service provider, or of one
// before IEEE 802.1ad.
func tagged(kind uint16) bool { return kind == wire.EtherTypeVLAN || kind == 0x88a8 || kind == 0x9100 }

// sender returns the sender of a request with a number, and receiver that to which an answer goes.
func (p *packet) sender(id uint16) sender   { return sender{p.src, p.v6, p.vlan, p.srcPort, id} }
func (p *packet) receiver(id uint16) sender { return sender{p.dst, p.v6, p.vlan, p.dstPort, id} }

// answerable reports whether the switch may answer a request in a frame. The frame must go from one station to one
// other, from which the answer then comes: the server, or the router before it. And it must be in no VLAN, where the
// server's address may be that of another host.
func (p *packet) answerable(b []byte) bool { return b[0]&1 == 0 && b[6]&1 == 0 && p.vlan == 0 }

// hides reports whether a packet may have a header of UDP or TCP that parse has not read: behind extension headers of
// IPv6, or in a first fragment too short for it.
func (p *packet) hides() bool {
	if p.ports || p.later {
		return false
	}
	return p.v6 && p.proto != protoICMP || !p.v6 && (p.proto == protoUDP || p.proto == protoTCP)
}

// intact reports whether the checksum of a whole UDP packet is right, or the packet has none, or hardware is yet
// to complete it. No host takes a packet of IPv6 without one.
func (p *packet) intact(f *packetio.Frame) bool {
	return f.CsumPartial || !p.v6 && binary.BigEndian.Uint16(f.Data[p.l4+6:]) == 0 || p.sum(f.Data[p.l4:p.l4+udpLen+len(p.payload)]) == 0xffff
}

// sum returns the ones' complement sum of a UDP packet with these bytes and of its pseudo-header.
func (p *packet) sum(udp []byte) uint16 {
	return packetio.Fold(protoUDP + uint64(len(udp)) + packetio.Sum(p.src[:]) + packetio.Sum(p.dst[:]) + packetio.Sum(udp))
}

// renumber replaces a port of a UDP packet, at offset at of its header, and the number of the request in its
// payload.
func (p *packet) renumber(f *packetio.Frame, at int, port, id uint16) {
	l4 := f.Data[p.l4:]
	delta := uint64(0)
	for _, x := range [...]struct {
		at int
		to uint16
	}{{at, port}, {udpLen, id}} {
		to := [2]byte{byte(x.to >> 8), byte(x.to)}
		delta += packetio.SumGrows(l4[x.at:][:2], to[:])
		copy(l4[x.at:], to[:])
	}
	if !f.CsumPartial { // the field has the sum of the addresses alone
		packetio.FixUDPSum(l4[6:], delta)
	}
}

// appendAnswer appends the frame that answers the request in frame b, of which p is the packet: a head with the
// number of the request, and body.
func (p *packet) appendAnswer(out, b, body []byte) []byte {
	be := binary.BigEndian
	out = append(append(append(out, b[6:12]...), b[:6]...), b[12:p.ip]...)
	n := udpLen + headLen + len(body)
	at := len(out)
	if p.v6 {
		out = append(out, 0x60, 0, 0, 0, byte(n>>8), byte(n), protoUDP, 64)
		out = append(append(out, p.dst[:]...), p.src[:]...)
	} else {
		total := ip4Len + n
		out = append(out, 0x45, 0, byte(total>>8), byte(total), 0, 0, 0x40, 0, 64, protoUDP, 0, 0)
		out = append(append(out, p.dst[:4]...), p.src[:4]...)
		be.PutUint16(out[at+10:], ^packetio.Fold(packetio.Sum(out[at:])))
	}
	at = len(out)
	out = be.AppendUint16(be.AppendUint16(out, p.dstPort), p.srcPort)
	out = be.AppendUint16(be.AppendUint16(out, uint16(n)), 0)
	out = append(append(out, p.payload[:2]...), 0, 0, 0, 1, 0, 0)
	out = append(out, body...)
	sum := ^p.sum(out[at:])
	if sum == 0 {
		sum = 0xffff
	}
	be.PutUint16(out[at+6:], sum)
	return out
}

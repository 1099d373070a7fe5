package fault

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Lengths of headers, and the IP protocol of UDP, for peek. peek does not use the codec of package
// wire, which parses and checks much more than rules can match.
const (
	ethLen  = 14
	vlanLen = 4
	udpLen  = 8
	bthLen  = 12

	ipProtoUDP = 17
)

// packetID identifies one RoCEv2 packet on one link and direction. A retransmission has the same
// packetID.
type packetID struct {
	dst [16]byte // IPv4 in the last four bytes
	qpn wire.QPN
	psn wire.PSN
	op  wire.Opcode
}

// view has the properties of a frame that rules can match.
type view struct {
	packetID
	// roce is set if the frame is a RoCEv2 packet with a complete BTH. If roce is false, only the
	// fields of 1RMA can have values.
	roce bool
	// oneRMA is set if the frame is a 1RMA message with a complete header; kind and solo are its
	// kind and operation.
	oneRMA bool
	kind   onerma.Kind
	solo   onerma.Op
	// syndrome is the syndrome of an RC_ACK or RC_ATOMIC_ACK.
	syndrome wire.Syndrome
}

// ipOffset returns the offset of the IP header and its EtherType; ok is false if the frame is too
// short.
func ipOffset(b []byte) (off int, etherType uint16, ok bool) {
	if len(b) < ethLen {
		return 0, 0, false
	}
	t := binary.BigEndian.Uint16(b[12:])
	if t != wire.EtherTypeVLAN {
		return ethLen, t, true
	}
	if len(b) < ethLen+vlanLen {
		return 0, 0, false
	}
	return ethLen + vlanLen, binary.BigEndian.Uint16(b[16:]), true
}

// peek parses a frame into v. It checks lengths only as far as it needs them, and no checksums: a
// fault may hit a packet that its receiver will reject.
func peek(b []byte, v *view) {
	*v = view{}
	off, etherType, ok := ipOffset(b)
	if !ok {
		return
	}
	var udp int
	switch ip := b[off:]; etherType {
	case wire.EtherTypeIPv4:
		if len(ip) < 20 || ip[0]>>4 != 4 || ip[9] != ipProtoUDP || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			return
		}
		udp = off + int(ip[0]&0xf)*4
		copy(v.dst[12:], ip[16:20])
	case wire.EtherTypeIPv6:
		if len(ip) < 40 || ip[6] != ipProtoUDP {
			return
		}
		udp = off + 40
		copy(v.dst[:], ip[24:40])
	default:
		return
	}
	bth := udp + udpLen
	if len(b) >= bth+onerma.HeaderLen && binary.BigEndian.Uint16(b[udp+2:]) == onerma.UDPPort && etherType == wire.EtherTypeIPv4 {
		v.dst = [16]byte{}
		v.oneRMA, v.kind, v.solo = true, onerma.Kind(b[bth+1]), onerma.Op(b[bth+2])
		return
	}
	if len(b) < bth+bthLen || binary.BigEndian.Uint16(b[udp+2:]) != wire.UDPPort {
		v.dst = [16]byte{}
		return
	}
	v.roce = true
	v.op = wire.Opcode(b[bth])
	v.qpn = wire.QPN(binary.BigEndian.Uint32(b[bth+4:]) & 0xffffff)
	v.psn = wire.PSN(binary.BigEndian.Uint32(b[bth+8:]) & 0xffffff)
	if (v.op == wire.RCAck || v.op == wire.RCAtomicAck) && len(b) > bth+bthLen {
		v.syndrome = wire.Syndrome(b[bth+bthLen])
	}
}

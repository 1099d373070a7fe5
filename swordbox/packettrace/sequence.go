package packettrace

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// sequence is the place of a frame's packets in the stream of their flow.
type sequence struct {
	qp     wire.QPN // destination queue pair of a RoCEv2 packet
	number uint32   // PSN, or the sequence number of TCP
	length uint32   // numbers that a packet takes
	steps  uint32   // packets with consecutive numbers: those of a super-frame
	bits   uint     // length of a sequence number in bits
}

// ahead returns by how much number n is ahead of sequence number m; negative means behind.
func (s *sequence) ahead(n, m uint32) int32 { return int32((n-m)<<(32-s.bits)) >> (32 - s.bits) }

// Lengths of headers in bytes, and the flags of TCP that take a sequence number.
const (
	ethLen, tagLen, ip6Len, udpLen, bthLen, tcpLen = 14, 4, 40, 8, 12, 20
	flagFIN, flagSYN                               = 0x01, 0x02
	protoTCP, protoUDP                             = 6, 17
)

// sequence returns the sequence number of a frame's first packet, whose key by flow is k. ok is false if it has
// none: its protocol has none, the header is not in the record, or the packet takes no number.
func (r *Record) sequence(k *telemetry.Key) (s sequence, ok bool) {
	if k.SrcPort == 0 && k.DstPort == 0 {
		return s, false // no transport header
	}
	at := ethLen
	if binary.BigEndian.Uint16(r.Head[12:]) == wire.EtherTypeVLAN {
		at += tagLen
	}
	end := 0 // end of the IP packet
	if k.Type == wire.EtherTypeIPv4 {
		end = at + int(binary.BigEndian.Uint16(r.Head[at+2:]))
		at += int(r.Head[at]&0xf) * 4
	} else {
		end = at + ip6Len + int(binary.BigEndian.Uint16(r.Head[at+4:]))
		at += ip6Len
	}
	if r.Packets > 1 {
		end = int(r.Length)
	}
	switch l4 := r.Head[at:]; {
	case k.Proto == protoUDP && k.DstPort == wire.UDPPort && len(l4) >= udpLen+bthLen:
		return r.psn(l4[udpLen:])
	case k.Proto == protoTCP && len(l4) >= tcpLen:
		return tcpOf(l4, end-at)
	}
	return s, false
}

// psn returns the PSN of a RoCEv2 packet. Acknowledgements and READ responses have the PSNs of the other side's requests
// and are left out.
func (r *Record) psn(b []byte) (s sequence, ok bool) {
	var h wire.BTH
	if h.Parse(b) != nil || h.Opcode.Service() != wire.ServiceRC && h.Opcode.Service() != wire.ServiceUC ||
		h.Opcode.Is(wire.OpResponse) || h.Opcode == wire.CNP {
		return s, false
	}
	return sequence{qp: h.DestQP, number: uint32(h.PSN), length: 1, steps: uint32(r.Packets), bits: 24}, true
}

// tcpOf returns the sequence number of a TCP segment of n bytes, with its header. A segment without
// data, SYN and FIN takes no number.
func tcpOf(b []byte, n int) (s sequence, ok bool) {
	length := n - int(b[12]>>4)*4
	for _, flag := range [...]byte{flagSYN, flagFIN} {
		if b[13]&flag != 0 {
			length++
		}
	}
	return sequence{number: binary.BigEndian.Uint32(b[4:]), length: uint32(max(0, length)), steps: 1, bits: 32}, length > 0
}

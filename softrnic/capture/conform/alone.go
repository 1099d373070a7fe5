package conform

import (
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const (
	// gsi is the queue pair of management datagrams, and gsiQKey its Q_Key.
	gsi     = wire.QPN(1)
	gsiQKey = 0x80010000
	// multicast is the destination of a datagram to a group.
	multicast = wire.QPN(0xffffff)
)

// arrives reports whether p can reach its receiver.
func arrives(p *flows.Packet) bool { return !p.Lost() && p.Verdict != dump.BadICRC }

// damages reports whether a comment says that a fault has changed bits of a packet. It was captured before the
// change; behind the switch it is damaged, without a comment.
func damages(comment string) bool {
	return strings.Contains(comment, "flipped") || strings.HasPrefix(comment, "fault ") && !strings.Contains(comment, ":")
}

// fragile reports whether bits that a fault has changed can be the reason that a packet breaks the rule.
func fragile(r Rule) bool {
	return slices.Contains([]Rule{Format, Opcode, ICRC, Version, Reserved}, r)
}

// alone holds a packet against the rules for which no other packet is needed.
func alone(p *flows.Packet) (Violation, bool) {
	h, op := &p.Header.BTH, p.Opcode()
	switch {
	case p.Verdict == dump.Malformed:
		return broken(p, Format, "%v", p.Err)
	case p.Verdict == dump.BadICRC:
		return broken(p, ICRC, "the packet has another one than its bytes make")
	case !op.Known():
		return broken(p, Opcode, "%v is none", op)
	case h.Version != 0:
		return broken(p, Version, "it is %d", h.Version)
	case h.Reserved6 != 0 || h.Reserved7 != 0:
		return broken(p, Reserved, "they are %#x and %#x", h.Reserved6, h.Reserved7)
	case op.Has(wire.HasXRCETH) && p.Header.XRCETH.Reserved != 0:
		return broken(p, Reserved, "that of the XRCETH is %#x", p.Header.XRCETH.Reserved)
	case !op.Has(wire.HasDETH) && !op.Is(wire.OpControl) && (h.DestQP <= gsi || h.DestQP == multicast):
		return broken(p, QueuePair, "%v goes to queue pair %#x", op, uint32(h.DestQP))
	case h.Solicited && (!op.Is(wire.OpLast|wire.OpOnly) || !op.Is(wire.OpSend) && !op.Is(wire.OpImm)):
		return broken(p, Solicited, "%v is", op)
	case op.Has(wire.HasDETH):
		return datagram(p)
	case op.Has(wire.HasAETH):
		return syndrome(p)
	case op.Has(wire.HasRETH) && p.Header.RETH.Length > 1<<31:
		return broken(p, Length, "it says %d bytes", p.Header.RETH.Length)
	}
	return none()
}

// datagram holds a datagram against the rules.
func datagram(p *flows.Packet) (Violation, bool) {
	switch qkey := p.Header.DETH.QKey; {
	case p.Length > maxMTU:
		return broken(p, MTU, "a datagram has %d bytes", p.Length)
	case p.Header.BTH.DestQP != gsi:
	case qkey != gsiQKey:
		return broken(p, Management, "the Q_Key is %#x", qkey)
	case p.Length != mad.Size:
		return broken(p, Management, "it has %d bytes", p.Length)
	}
	return none()
}

// syndrome holds the AETH of an answer against the rules.
func syndrome(p *flows.Packet) (Violation, bool) {
	switch s := p.Header.AETH.Syndrome; {
	case !s.IsAck() && !s.IsRNR() && !s.IsNak(), s.IsNak() && s > wire.NakInvalidRD:
		return broken(p, Syndrome, "it is %v", s)
	case s == wire.NakInvalidRD:
		return broken(p, NakCode, "%v is for reliable datagrams", s)
	case p.Opcode().Plain() != wire.RCAck && !s.IsAck():
		return broken(p, Positive, "%v has %v", p.Opcode(), s)
	}
	return none()
}

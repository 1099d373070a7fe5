package wire

import "fmt"

// String prints the packet in one line: opcode, destination, PSN, flags, the extended headers that
// the opcode has, and the payload's length. It is for logs and dumps, not for a hot path.
func (p *Packet) String() string { return string(p.appendText(nil)) }

func (f *Frame) String() string {
	return fmt.Sprintf("%v > %v %v", f.SrcAddr(), f.DstAddr(), &f.Packet)
}

func (p *Packet) appendText(b []byte) []byte {
	h := &p.BTH
	b = fmt.Appendf(b, "%v qp=%#x psn=%#06x", h.Opcode, uint32(h.DestQP), uint32(h.PSN))
	if has := h.Opcode.Info().Headers; has != 0 {
		b = p.appendHeaderText(b, has)
	}
	if h.Opcode.Is(OpPayload) {
		b = fmt.Appendf(b, " payload=%d", len(p.Payload))
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{
		{h.AckReq, "ackreq"}, {h.Solicited, "solicited"}, {h.MigReq, "migreq"}, {h.FECN, "fecn"}, {h.BECN, "becn"},
	} {
		if flag.set {
			b = append(append(b, ' '), flag.name...)
		}
	}
	return b
}

func (p *Packet) appendHeaderText(b []byte, has Headers) []byte {
	if has&HasDETH != 0 {
		b = fmt.Appendf(b, " qkey=%#x srcqp=%#x", p.DETH.QKey, uint32(p.DETH.SrcQP))
	}
	if has&HasXRCETH != 0 {
		b = fmt.Appendf(b, " srq=%#x", p.XRCETH.SRQN)
	}
	if has&HasFETH != 0 {
		b = fmt.Appendf(b, " level=%d placement=%#x", p.FETH.Level, p.FETH.Placement)
	}
	if has&HasRETH != 0 {
		b = fmt.Appendf(b, " va=%#x rkey=%#x len=%d", p.RETH.VA, p.RETH.RKey, p.RETH.Length)
	}
	if has&HasAETH != 0 {
		b = fmt.Appendf(b, " %v msn=%d", p.AETH.Syndrome, p.AETH.MSN)
	}
	if has&HasImmDt != 0 {
		b = fmt.Appendf(b, " imm=%#x", p.ImmDt)
	}
	if has&HasIETH != 0 {
		b = fmt.Appendf(b, " inv=%#x", p.IETH)
	}
	if has&HasAtomicETH != 0 {
		a := &p.AtomicETH
		if op := p.BTH.Opcode.Plain(); op == RCFetchAdd || op == RCMaskedFetchAdd {
			b = fmt.Appendf(b, " va=%#x rkey=%#x add=%#x", a.VA, a.RKey, a.SwapOrAdd)
		} else {
			b = fmt.Appendf(b, " va=%#x rkey=%#x compare=%#x swap=%#x", a.VA, a.RKey, a.Compare, a.SwapOrAdd)
		}
	}
	switch {
	case has&HasAtomicMasks == 0:
	case p.BTH.Opcode == RCMaskedFetchAdd:
		b = fmt.Appendf(b, " boundary=%#x", p.Masks.CompareOrBoundary)
	default:
		b = fmt.Appendf(b, " cmask=%#x smask=%#x", p.Masks.CompareOrBoundary, p.Masks.Swap)
	}
	if has&HasAtomicAckETH != 0 {
		b = fmt.Appendf(b, " orig=%#x", p.AtomicAck)
	}
	return b
}

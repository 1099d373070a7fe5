package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// request returns the next packet of a peer that keeps the rules: in sequence, and fitting the
// message that has begun.
func (p *play) request() wire.Packet {
	q := p.s.qp
	if q.Config().Type == verbs.UD {
		return p.datagram()
	}
	pkt := wire.Packet{BTH: wire.BTH{PSN: q.rsp.ePSN, AckReq: p.d.under(2) == 0, DestQP: q.Num()}}
	x := &q.rsp.exec
	switch {
	case x.msg == inSend:
		pkt.BTH.Opcode = pick(&p.d, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendLast, wire.RCSendLastImm, wire.RCSendLastInv)
		pkt.Payload = make([]byte, fuzzMTU)
		if pkt.BTH.Opcode != wire.RCSendMiddle {
			pkt.Payload = pkt.Payload[:1+p.d.roll()]
		}
	case x.msg == inWrite && x.left > fuzzMTU:
		pkt.BTH.Opcode = wire.RCWriteMiddle
		pkt.Payload = make([]byte, fuzzMTU)
	case x.msg == inWrite:
		pkt.BTH.Opcode = pick(&p.d, wire.RCWriteLast, wire.RCWriteLast, wire.RCWriteLastImm)
		pkt.Payload = make([]byte, x.left)
	default:
		p.beginning(&pkt)
	}
	for i := range pkt.Payload {
		pkt.Payload[i] = byte(i) | 1
	}
	if pkt.BTH.Opcode.Has(wire.HasIETH) {
		pkt.IETH = p.doomed()
	}
	if q.Config().Type == verbs.UC {
		pkt.BTH.Opcode |= wire.ServiceUC
	}
	return pkt
}

// beginning returns the first or only packet of a message.
func (p *play) beginning(pkt *wire.Packet) {
	q := p.s.qp
	ops := []wire.Opcode{
		wire.RCSendOnly, wire.RCSendOnlyImm, wire.RCSendFirst, wire.RCWriteOnly, wire.RCWriteOnlyImm, wire.RCWriteFirst, wire.RCWriteFirst,
		wire.RCSendOnlyInv, wire.RCReadRequest, wire.RCReadRequest, wire.RCCmpSwap, wire.RCFetchAdd,
		wire.RCMaskedCmpSwap, wire.RCMaskedFetchAdd, wire.RCAtomicWrite, wire.RCFlush,
	}
	if q.Config().Type == verbs.UC {
		ops = ops[:7]
	}
	pkt.BTH.Opcode = pick(&p.d, ops...)
	n := pick(&p.d, 0, 8, 200, 256)
	off := 8 * p.d.under(16)
	pkt.RETH = wire.RETH{VA: p.s.mem.Base() + uint64(off), RKey: p.s.mem.RKey(), Length: uint32(n)}
	switch pkt.BTH.Opcode {
	case wire.RCReadRequest:
		pkt.RETH.Length = uint32(pick(&p.d, 0, 8, 256, 257, 800))
		return
	case wire.RCCmpSwap, wire.RCFetchAdd, wire.RCMaskedCmpSwap, wire.RCMaskedFetchAdd:
		pkt.AtomicETH = wire.AtomicETH{VA: pkt.RETH.VA, RKey: pkt.RETH.RKey, SwapOrAdd: 5, Compare: 0}
		return
	case wire.RCFlush:
		pkt.FETH = wire.FETH{Level: uint8(p.d.under(2)), Placement: uint8(pick(&p.d, 1, 1, 1, 2, 3, 4))}
		return
	case wire.RCAtomicWrite:
		n, pkt.RETH.Length = 8, 8
	case wire.RCSendFirst:
		n = fuzzMTU
	case wire.RCWriteFirst:
		n = fuzzMTU
		pkt.RETH.Length = uint32(pick(&p.d, 257, 512, 700, 880))
	}
	pkt.Payload = make([]byte, n)
}

// doomed returns a key that a peer may invalidate.
func (p *play) doomed() uint32 {
	r, err := p.s.env.Mem.AllocFast(p.s.pd, make([]byte, 8))
	if err != nil {
		return 1
	}
	_ = p.s.env.Mem.Register(p.s.pd, r.RKey(), verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, allAccess)
	return r.RKey()
}

func (p *play) datagram() wire.Packet {
	pkt := wire.Packet{BTH: wire.BTH{Opcode: pick(&p.d, wire.UDSendOnly, wire.UDSendOnlyImm)}, DETH: wire.DETH{QKey: testQKey, SrcQP: 9}}
	pkt.Payload = make([]byte, pick(&p.d, 0, 24, 200, 800))
	return pkt
}

// answer returns an answer that the requester may wait for: to its oldest work request, or one that
// acknowledges several.
func (p *play) answer() wire.Packet {
	q := &p.s.qp.req
	pkt := wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: q.una}, AETH: wire.AETH{Syndrome: wire.AckNoCredits}}
	if span := q.offset(q.maxPSN); span > 0 {
		pkt.BTH.PSN = q.una.Add(p.d.under(int(min(span, 256))))
	}
	switch p.d.under(16) {
	case 0:
		pkt.AETH.Syndrome = wire.NakPSNSequence
		return pkt
	case 1:
		pkt.AETH.Syndrome = wire.RNRNak | wire.Syndrome(p.d.under(32))
		return pkt
	case 2:
		if p.d.under(4) == 0 {
			pkt.AETH.Syndrome = pick(&p.d, wire.NakInvalid, wire.NakRemoteAccess, wire.NakRemoteOp, wire.Syndrome(0x6f))
		}
		return pkt
	}
	w := q.sender.sq.at(q.sender.sq.head)
	if q.sender.sq.len() == 0 || !w.started || !w.answered() {
		return pkt
	}
	pkt.BTH.PSN = q.una
	if isBare(w.op) {
		pkt.BTH.Opcode = wire.RCReadResponseOnly
		return pkt
	}
	if w.op != verbs.OpRead {
		pkt.BTH.Opcode, pkt.AtomicAck = wire.RCAtomicAck, uint64(p.d.roll())
		return pkt
	}
	missing := w.length - w.acked*fuzzMTU
	begins, ends := w.acked == w.askedFrom, missing <= fuzzMTU
	switch {
	case begins && ends:
		pkt.BTH.Opcode = wire.RCReadResponseOnly
	case begins:
		pkt.BTH.Opcode = wire.RCReadResponseFirst
	case ends:
		pkt.BTH.Opcode = wire.RCReadResponseLast
	default:
		pkt.BTH.Opcode = wire.RCReadResponseMiddle
	}
	pkt.Payload = make([]byte, min(missing, fuzzMTU))
	return pkt
}

// mutate makes one mistake in a packet.
func (p *play) mutate(pkt wire.Packet) wire.Packet {
	n := p.d.roll()
	switch p.d.under(10) {
	case 0:
		pkt.BTH.PSN = pkt.BTH.PSN.Add(1 + n%4)
	case 1:
		pkt.BTH.PSN = pkt.BTH.PSN.Add(-1 - n%8)
	case 2:
		pkt.BTH.PSN = wire.PSN(n) << 16
	case 3:
		pkt.BTH.Opcode = pkt.BTH.Opcode&0xe0 | wire.Opcode(n)&0x1f
	case 4:
		pkt.AETH.Syndrome = wire.Syndrome(n)
	case 5:
		pkt.RETH.Length = uint32(n) << uint(n%24)
	case 6:
		pkt.RETH.RKey ^= 1 << (n % 32)
		pkt.AtomicETH.RKey ^= 1 << (n % 32)
		pkt.IETH ^= 1 << (n % 32)
		pkt.DETH.QKey ^= 1 << (n % 32)
	case 7:
		pkt.RETH.VA += uint64(n) << (n % 40)
		pkt.AtomicETH.VA += uint64(n%8) + 1
	case 8:
		pkt.Payload = pkt.Payload[:len(pkt.Payload)*(n%8)/8]
	case 9:
		pkt.Payload = append(pkt.Payload, make([]byte, n+1)...)
	}
	return pkt
}

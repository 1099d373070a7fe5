package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// result is what the responder keeps of an executed atomic or ATOMIC_WRITE. The latter has no
// value.
type result struct {
	psn   wire.PSN
	op    wire.Opcode
	va    uint64
	value uint64
}

// answer returns the response that carries the result.
func (e *result) answer() response {
	if e.op == wire.RCAtomicWrite {
		return response{kind: owedWritten, psn: e.psn}
	}
	return response{kind: owedAtomic, psn: e.psn, value: e.value}
}

// duplicate answers a request whose PSN is before the expected one. Only a READ is executed again,
// because it changes nothing (IBTA 9.7.4.1/duplicate).
func (r *responder) duplicate(p *wire.Packet, info *wire.OpInfo) {
	r.env.Counters.DuplicateRequest++
	switch {
	case info.Flags&wire.OpRead != 0:
		r.duplicateRead(p)
	case info.Flags&wire.OpAtomic != 0:
		r.duplicateAtomic(p)
	case info.Flags&(wire.OpSend|wire.OpWrite) != 0:
		// C9-105: acknowledged with the newest PSN, which acknowledges all executed requests.
		if p.BTH.AckReq {
			r.answers.owe(response{kind: owedAck, psn: r.ePSN.Add(-1), syndrome: wire.AckNoCredits})
		}
	}
}

// duplicateAtomic answers from the stored results, newest first. A duplicate without a stored
// result is dropped: its requester has received the answer, or it could not have sent so many later
// atomics.
func (r *responder) duplicateAtomic(p *wire.Packet) {
	va, _, _ := wordOf(p)
	for i := len(r.exec.replay) - 1; i >= 0; i-- {
		e := &r.exec.replay[i]
		if e.psn != p.BTH.PSN {
			continue
		}
		if e.op == p.BTH.Opcode && e.va == va && r.answers.owe(e.answer()) {
			r.env.Counters.ReplayedAtomics++
		}
		return
	}
}

// duplicateRead executes a READ again, from its beginning or from the packet that the requester
// asks for. All its PSNs must be before the expected one, and its R_Key must still be valid. If the
// responder is just answering this READ, it continues from the requested packet.
func (r *responder) duplicateRead(p *wire.Packet) {
	n := packetsOf(p.RETH.Length, r.mtu)
	if p.RETH.Length > maxMsgSize || wire.Diff(p.BTH.PSN.Add(int(n-1)), r.ePSN) >= 0 || len(p.Payload) > 0 {
		return
	}
	for i := range r.answers.owed {
		e := &r.answers.owed[i]
		if e.kind != owedRead || !e.covers(p.BTH.PSN) {
			continue
		}
		off := uint32(wire.Diff(p.BTH.PSN, e.psn))
		if same := p.RETH.VA == e.va+uint64(off*r.mtu) && p.RETH.RKey == e.rkey; same && off < e.sent {
			e.sent = off
			if i == 0 && r.answers.torn.kind == tornRead {
				r.answers.torn.kind = notTorn
			}
			r.env.Counters.ReplayedReads++
		}
		return
	}
	if r.init.Access&verbs.RemoteRead == 0 {
		return
	}
	if r.answers.owe(response{kind: owedRead, psn: p.BTH.PSN, packets: n, va: p.RETH.VA, rkey: p.RETH.RKey, length: p.RETH.Length, msn: r.answers.msn}) {
		r.env.Counters.ReplayedReads++
	}
}

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// result is the stored outcome of an atomic.
type result struct {
	psn   wire.PSN
	op    wire.Opcode
	va    uint64
	value uint64
}

// duplicate answers a request with a PSN before the expected one. Nothing is executed twice but READs, which change
// nothing (IBTA 9.7.4.1/duplicate).
func (q *QP) duplicate(p *wire.Packet, info *wire.OpInfo) {
	q.env.Counters.DuplicateRequest++
	switch {
	case info.Flags&wire.OpRead != 0:
		q.duplicateRead(p)
	case info.Flags&wire.OpAtomic != 0:
		q.duplicateAtomic(p)
	case info.Flags&(wire.OpSend|wire.OpWrite) != 0:
		// C9-105: acknowledged with the newest PSN, which tells the peer about everything at once.
		if p.BTH.AckReq {
			q.owe(response{kind: owedAck, psn: q.rsp.ePSN.Add(-1), syndrome: wire.AckNoCredits})
		}
	}
}

// duplicateAtomic answers from the stored results, newest first. One that is not there any more is dropped: its
// requester had its answer, or it would not have gone on so far.
func (q *QP) duplicateAtomic(p *wire.Packet) {
	for i := len(q.rsp.replay) - 1; i >= 0; i-- {
		r := &q.rsp.replay[i]
		if r.psn != p.BTH.PSN {
			continue
		}
		if r.op == p.BTH.Opcode && r.va == p.AtomicETH.VA && q.owe(response{kind: owedAtomic, psn: r.psn, value: r.value}) {
			q.env.Counters.ReplayedAtomics++
		}
		return
	}
}

// duplicateRead executes a READ again, whole or from its middle. It must lie before the expected PSN as a whole,
// and its key must still be good; a READ that is being answered just now is answered from the asked place on.
func (q *QP) duplicateRead(p *wire.Packet) {
	n := packetsOf(p.RETH.Length, q.mtu)
	if p.RETH.Length > MaxMsgSize || wire.Diff(p.BTH.PSN.Add(int(n-1)), q.rsp.ePSN) >= 0 || len(p.Payload) > 0 {
		return
	}
	for i := range q.rsp.owed {
		e := &q.rsp.owed[i]
		if e.kind != owedRead || !e.covers(p.BTH.PSN) {
			continue
		}
		off := uint32(wire.Diff(p.BTH.PSN, e.psn))
		if same := p.RETH.VA == e.va+uint64(off*q.mtu) && p.RETH.RKey == e.rkey; same && off < e.sent {
			e.sent = off
			if i == 0 && q.rsp.torn.kind == tornRead {
				q.rsp.torn.kind = notTorn
			}
			q.env.Counters.ReplayedReads++
		}
		return
	}
	if q.init.Access&verbs.RemoteRead == 0 {
		return
	}
	if q.owe(response{kind: owedRead, psn: p.BTH.PSN, packets: n, va: p.RETH.VA, rkey: p.RETH.RKey, length: p.RETH.Length, msn: q.rsp.msn}) {
		q.env.Counters.ReplayedReads++
	}
}

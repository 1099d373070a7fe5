package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The unreliable connection: SEND and WRITE without acknowledgement (IBTA 9.8.2). The receiver knows of a loss by the PSN, drops the
// whole message that it hit, in silence, and begins again with the next FIRST or ONLY (IBTA 9.8.2.2.1).

// startUC begins a work request. A message that cannot be read to its end is not begun.
func (q *QP) startUC(w *sendWQE) {
	if w.local() {
		return
	}
	if w.flags&verbs.Inline == 0 && q.checkSGL(q.sq.sgl(q.sq.send), false) != mem.OK {
		w.status = verbs.LocProtErr
	}
	w.packets = packetsOf(w.length, q.mtu)
}

// packetUC sends the next packet of w, the oldest work request, and completes w with its last one.
func (q *QP) packetUC(w *sendWQE, out *Actions) {
	tx := q.newPacket(out)
	last := w.sent+1 == w.packets
	if q.buildData(w, tx, last, out) != mem.OK {
		w.status = verbs.LocProtErr // its region went away within the message
		out.Tx = out.Tx[:len(out.Tx)-1]
		return
	}
	tx.BTH.Opcode |= wire.ServiceUC
	tx.BTH.PSN = q.req.nextPSN
	q.req.nextPSN = q.req.nextPSN.Next()
	if w.sent++; last {
		q.sq.send++
		q.completeSend(w, verbs.Success, out)
	}
}

// handleUC takes a packet through the same chain of checks as a reliable connection. One out of sequence ends the
// message in progress; FIRST and ONLY begin a new one at any PSN.
func (q *QP) handleUC(_ clock.Time, p *wire.Packet, out *Actions) {
	r := &q.rsp
	q.settleWrite()
	info := p.BTH.Opcode.Info()
	if r.established && p.BTH.PSN != r.ePSN {
		q.saw(p.BTH.Opcode, "gap")
		q.env.Counters.OutOfSequence++
	}
	begins := info.Flags&(wire.OpFirst|wire.OpOnly) != 0
	if r.msg != noMessage && (begins || p.BTH.PSN != r.ePSN) {
		q.saw(p.BTH.Opcode, "ends another")
		q.dropMessage()
	}
	q.establish(out)
	r.ePSN = p.BTH.PSN.Next()
	if begins {
		r.skip = false
	} else if r.msg == noMessage {
		q.saw(p.BTH.Opcode, "no beginning")
		q.dropMessage() // the rest of a message whose beginning was lost or refused
		return
	}
	for i := range chain {
		if v := chain[i].check(q, p, info); v != pass {
			q.sawVerdict(p.BTH.Opcode, v)
			q.refuseUnreliable(v, out)
			q.dropMessage()
			return
		}
	}
	q.sawVerdict(p.BTH.Opcode, pass)
	if info.Flags&(wire.OpLast|wire.OpOnly) != 0 {
		q.completeMessage(p, info, out)
	}
}

// dropMessage forgets the message in progress. Its receive stays posted and takes the next one.
func (q *QP) dropMessage() {
	r := &q.rsp
	if !r.skip {
		q.env.Counters.DroppedMsgs++
	}
	r.skip, r.msg, r.recvHeld = true, noMessage, false
}

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The unreliable connection: SEND and WRITE without acknowledgement. A work request is complete when its last packet
// was handed out. The receiver knows of a loss by the PSN, drops the whole message that it hit, in silence, and
// begins again with the next FIRST or ONLY (IBTA 9.8.2.2.1).

// sendUC sends what is in the send queue, at most Window packets: the rest is due at once, so that other queue pairs
// come between.
func (q *QP) sendUC(now clock.Time, out *Actions) {
	if q.req.sendAt != clock.Never {
		return // this step is for others
	}
	for budget := q.cfg.Window; q.sq.len() > 0 && (q.state == verbs.StateRTS || q.state == verbs.StateSQD); {
		w := q.sq.at(q.sq.head)
		if !w.started && !q.startUC(w) {
			break
		}
		switch {
		case w.status != verbs.Success:
		case w.op == verbs.OpLocalInv:
			q.localInvalidate(w, out)
		case budget == 0:
			q.req.sendAt = now
			return
		default:
			budget--
			q.sendPacketUC(w, out)
		}
		if w.status != verbs.Success {
			q.failSend(w.status, out)
		}
	}
	q.checkDrained(out)
}

// startUC gives w its PSNs and checks its memory; false says that w must wait.
func (q *QP) startUC(w *sendWQE) bool {
	if q.state == verbs.StateSQD {
		return false
	}
	w.started, w.first = true, q.req.nextPSN
	if w.op == verbs.OpLocalInv {
		return true
	}
	// A message that cannot be read to its end is not begun.
	if w.flags&verbs.Inline == 0 && q.checkSGL(q.sq.sgl(q.sq.send), false) != mem.OK {
		w.status = verbs.LocProtErr
		return true
	}
	w.packets = packetsOf(w.length, q.mtu)
	q.req.nextPSN = w.first.Add(int(w.packets))
	return true
}

// sendPacketUC sends the next packet of w, the oldest work request, and completes w with its last one.
func (q *QP) sendPacketUC(w *sendWQE, out *Actions) {
	tx := q.newPacket(out)
	last := w.sent+1 == w.packets
	if q.buildData(w, tx, last, out) != mem.OK {
		w.status = verbs.LocProtErr // its region went away within the message
		out.Tx = out.Tx[:len(out.Tx)-1]
		return
	}
	tx.BTH.Opcode |= wire.ServiceUC
	tx.BTH.PSN = w.first.Add(int(w.sent))
	if w.sent++; last {
		q.sq.send++
		q.completeSend(w, verbs.Success, out)
	}
}

// failSend completes the oldest work request with a status and the rest with flushes. The send queue is in error until
// ResumeRTS; receiving goes on (IBTA 10.3.1, SQE).
func (q *QP) failSend(status verbs.Status, out *Actions) {
	to, err := next(q.svc.states, q.state, evSendFault)
	if err != nil {
		panic("transport: a send failed in a state that does not send: " + q.state.String())
	}
	q.state = to
	q.req.stop()
	q.completeSend(q.sq.at(q.sq.head), status, out)
	q.flushSends(out)
}

// handleUC takes a packet through the same chain of checks as a reliable connection. One out of sequence ends the message in progress; FIRST and ONLY begin a new one at any PSN.
func (q *QP) handleUC(_ clock.Time, p *wire.Packet, out *Actions) {
	r := &q.rsp
	q.settleWrite()
	info := p.BTH.Opcode.Info()
	if r.established && p.BTH.PSN != r.ePSN {
		q.env.Counters.OutOfSequence++
	}
	begins := info.Flags&(wire.OpFirst|wire.OpOnly) != 0
	if r.msg != noMessage && (begins || p.BTH.PSN != r.ePSN) {
		q.dropMessage()
	}
	q.establish(out)
	r.ePSN = p.BTH.PSN.Next()
	if begins {
		r.skip = false
	} else if r.msg == noMessage {
		q.dropMessage() // the rest of a message whose beginning was lost or refused
		return
	}
	for i := range chain {
		if v := chain[i].check(q, p, info); v != pass {
			q.refuseUnreliable(v, out)
			return
		}
	}
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

// refuseUnreliable drops a message that failed a check: nobody is told (IBTA 9.9.3, responder class D). Only a
// receive whose own memory is bad ends the queue pair (class A).
func (q *QP) refuseUnreliable(v verdict, out *Actions) {
	c := q.env.Counters
	if v == refuseNotReady {
		c.OutOfBuffer++
		q.dropMessage()
		return
	}
	f := &refusals[v]
	switch f.counter {
	case countInvalid:
		c.RespInvalidErr++
	case countAccess:
		c.RespAccessErr++
	case countLocal:
		c.RespOpErr++
		q.completeRecv(verbs.WC{Status: f.recv}, out)
		q.raise(f.event, out)
		q.fault(out)
		return
	}
	q.dropMessage()
}

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The unreliable connection: SEND and WRITE without acknowledgement (IBTA 9.8.2). The responder
// notices a loss by the PSN, drops the whole message without an answer, and begins again with the
// next FIRST or ONLY (IBTA 9.8.2.2.1).

// startUC begins a work request. If a part of its memory is not readable, no packet of the message
// is sent, and the work request fails.
func (u *unreliableSender) startUC(w *sendWQE) {
	if w.local() {
		return
	}
	if w.flags&verbs.Inline == 0 && u.sender.access.checkSGL(u.sender.sq.sgl(u.sender.sq.send), false) != mem.OK {
		w.status = verbs.LocProtErr
	}
	w.packets = packetsOf(w.length, u.sender.mtu)
}

// packetUC sends the next packet of w, the oldest work request. With its last packet, w completes.
func (u *unreliableSender) packetUC(w *sendWQE, out *Actions) {
	tx := u.sender.newPacket(out)
	last := w.sent+1 == w.packets
	if u.sender.buildData(w, tx, last, out) != mem.OK {
		w.status = verbs.LocProtErr // the region was deregistered during the message
		out.Tx = out.Tx[:len(out.Tx)-1]
		return
	}
	tx.BTH.Opcode |= wire.ServiceUC
	tx.BTH.PSN = u.sender.nextPSN
	u.sender.nextPSN = u.sender.nextPSN.Next()
	if w.sent++; last {
		u.sender.completeSend(w, verbs.Success, reason.None, out)
	}
}

// handleUC handles a packet of an unreliable connection. It makes the same checks as for a reliable
// connection. A packet out of sequence ends the message in progress; FIRST and ONLY begin a new
// message with any PSN.
func (r *responder) handleUC(p *wire.Packet, out *Actions) {
	r.answers.torn.settleWrite()
	info := p.BTH.Opcode.Info()
	if r.phase != phaseSilent && p.BTH.PSN != r.ePSN {
		r.saw(p.BTH.Opcode, "gap")
		r.env.Counters.OutOfSequence++
		r.noteLost(p)
	}
	begins := info.Flags&(wire.OpFirst|wire.OpOnly) != 0
	if r.exec.msg != noMessage && (begins || p.BTH.PSN != r.ePSN) {
		r.saw(p.BTH.Opcode, "ends another")
		r.dropMessage()
	}
	r.establish(out)
	r.ePSN = p.BTH.PSN.Next()
	if begins {
		r.skip = false
	} else if r.exec.msg == noMessage {
		r.saw(p.BTH.Opcode, "no beginning")
		r.dropMessage() // a part of a message whose beginning was lost or refused
		return
	}
	if v := r.exec.run(p, info); v != pass {
		r.refuseSilently(v, p, info, out)
		r.dropMessage()
		return
	}
	if info.Flags&(wire.OpLast|wire.OpOnly) != 0 {
		r.exec.completeMessage(p, info, out)
	}
}

// dropMessage drops the message in progress. Its receive stays posted for the next message.
func (r *responder) dropMessage() {
	if !r.skip {
		r.env.Counters.DroppedMsgs++
	}
	r.skip, r.exec.msg, r.rcv.held = true, noMessage, false
}

// refuseSilently drops a message that failed a check, and sends no response (IBTA 9.9.3/silent,
// responder class D). The queue pair enters the error state only if the receive that the message
// uses names memory that is not accessible (IBTA 9.9.3/local, class A).
func (r *responder) refuseSilently(v verdict, p *wire.Packet, info *wire.OpInfo, out *Actions) {
	c := r.env.Counters
	if v == refuseNotReady {
		c.OutOfBuffer++
		r.noteNotReady(p, 0)
		return
	}
	f := &refusals[v]
	f.count(c)
	code := r.noteRefusal(v, p, info, 0)
	if f.counter == countLocal {
		r.rcv.complete(f.recv, code, out)
		r.raise(f.event, out)
		r.qp.fault(reason.AfterRefusal, out)
	}
}

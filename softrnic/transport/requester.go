package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxOutstandingPSNs is half of the PSN space: beyond it a responder could not tell new from old (IBTA 9.7.1/window).
const maxOutstandingPSNs = 1 << 23

// requester is the sending half. PSNs are in this order, and everything between una and maxPSN may be answered:
//
//	una            oldest PSN that is not acknowledged
//	  ≤ maxPSN     one past the highest PSN ever sent
//	    ≤ nextPSN  first PSN for the next work request to be started
type requester struct {
	una, maxPSN, nextPSN wire.PSN
	// flight counts packets of this round that are under way: requests not acknowledged, and what READs asked for
	// and have not got. It stays within window, but for the rest of the last READ.
	flight int
	window int // see window.go
	// rdOut counts READs and atomics started and not complete; at most MaxRdAtomic.
	rdOut int
	// sinceAckReq counts packets since the last one with AckReq.
	sinceAckReq int
	// draining is set in SQD until EventSQDrained.
	draining bool
	retry    retry
	// retryAt is when the oldest unacknowledged packet is given up; rnrAt when an RNR wait ends.
	retryAt, rnrAt clock.Time
	// sendAt is due when an unreliable service has more to send than one step may.
	sendAt clock.Time
}

func (r *requester) start(a verbs.ToRTS, window int) {
	r.window = window
	r.una, r.maxPSN, r.nextPSN = a.SendPSN, a.SendPSN, a.SendPSN
	r.retry = newRetry(a)
	r.stop()
}

// offset is how far p is behind una. Everything outstanding is 0 to 2^23 inclusive, one more than wire.Diff can
// tell apart: a READ of 2^31 bytes at path MTU 256 takes exactly 2^23 PSNs.
func (r *requester) offset(p wire.PSN) uint32 { return uint32(p-r.una) & max24 }

// stop ends all waiting.
func (r *requester) stop() {
	r.retryAt, r.rnrAt, r.sendAt = clock.Never, clock.Never, clock.Never
	r.draining = false
}

// pump sends what window, fences and limits allow, and fails the oldest work request if it cannot be executed.
// It emits at most a window of packets.
func (q *QP) pump(now clock.Time, out *Actions) {
	if q.state != verbs.StateRTS && q.state != verbs.StateSQD {
		return
	}
	for q.req.rnrAt == clock.Never && q.sq.send != q.sq.tail {
		w := q.sq.at(q.sq.send)
		if !w.started && !q.startWQE(w) {
			break
		}
		if w.status != verbs.Success || q.req.flight >= q.req.window {
			break
		}
		if w.local() {
			q.executeLocal(w, out)
			continue
		}
		q.sendPacket(w, out)
		if w.sent >= w.requests() {
			q.sq.send++
		}
	}
	if w := q.sq.at(q.sq.head); q.sq.len() > 0 && w.status != verbs.Success {
		q.failOldest(w.status, out)
		return
	}
	if q.req.flight > 0 && q.req.retryAt == clock.Never && q.req.rnrAt == clock.Never {
		q.req.retryAt = now.Add(q.ackTimeout())
		if q.rts.Timeout == 0 {
			q.req.retryAt = clock.Never
		}
	}
}

// startWQE gives w its PSNs, or says that it must wait. A request that can never be sent is started and marked.
func (q *QP) startWQE(w *sendWQE) bool {
	oldest := q.sq.send == q.sq.head
	switch {
	case q.state == verbs.StateSQD:
		return false
	case w.local() && !oldest:
		// A local operation waits for all before it and holds all behind it, so that no retransmission can
		// need the key or replay the operation (IBTA 10.8.3/local).
		return false
	case w.flags&verbs.Fence != 0 && q.req.rdOut > 0:
		return false // IBTA 10.8.3/fence
	case w.answered() && q.req.rdOut >= q.rts.MaxRdAtomic && q.rts.MaxRdAtomic > 0:
		return false // no more than the responder has resources for, IBTA 9.7.3/depth
	}
	packets := (w.length + q.mtu - 1) / q.mtu
	switch {
	case w.local():
		packets = 0
	case packets == 0:
		packets = 1
	}
	if q.req.offset(q.req.nextPSN)+packets > maxOutstandingPSNs {
		return false
	}
	w.started, w.first, w.packets = true, q.req.nextPSN, packets
	q.req.nextPSN = w.first.Add(int(packets))
	if w.answered() {
		q.req.rdOut++
		if q.rts.MaxRdAtomic == 0 {
			w.status = verbs.LocQPOpErr // the queue pair was set up without initiator depth
		}
	}
	if (packets > 1 || w.answered()) && w.flags&verbs.Inline == 0 && q.checkSGL(q.sq.sgl(q.sq.send), w.answered()) != mem.OK {
		w.status = verbs.LocProtErr
	}
	return true
}

// sendPacket sends the next packet of w, which is at the send position.
func (q *QP) sendPacket(w *sendWQE, out *Actions) {
	tx := q.newPacket(out)
	psn, last := w.first.Add(int(w.sent)), w.sent+1 == w.packets
	switch {
	case w.op == verbs.OpRead:
		psn, last = w.first.Add(int(w.acked)), true
		q.buildRead(w, tx)
	case w.answered():
		buildAtomic(w, tx)
	default:
		if q.buildData(w, tx, last, out) != mem.OK {
			w.status = verbs.LocProtErr
			out.Tx = out.Tx[:len(out.Tx)-1]
			return
		}
	}
	tx.BTH.PSN = psn
	before := w.inFlight()
	w.sent++
	q.req.flight += w.inFlight() - before
	q.req.sinceAckReq++
	if last || q.req.sinceAckReq >= q.cfg.AckEvery || q.req.flight >= q.req.window {
		tx.BTH.AckReq = true
		q.req.sinceAckReq = 0
	}
	end := psn.Next()
	if w.answered() {
		end = w.first.Add(int(w.packets))
	}
	if q.req.offset(psn) < q.req.offset(q.req.maxPSN) {
		q.env.Counters.RetransPkts++
		q.retransPkts++
	}
	if q.req.offset(end) > q.req.offset(q.req.maxPSN) {
		q.req.maxPSN = end
	}
}

// newPacket appends a packet to the peer.
func (q *QP) newPacket(out *Actions) *wire.Packet {
	out.Tx = append(out.Tx, TxPacket{QP: q})
	p := &out.Tx[len(out.Tx)-1].Packet
	p.BTH.PKey, p.BTH.DestQP = q.init.PKey, q.rtr.DestQPN
	return p
}

// buildRead asks for what is missing of a READ: all of it, or its tail in a retry.
func (q *QP) buildRead(w *sendWQE, tx *wire.Packet) {
	if w.acked > 0 {
		q.env.Counters.ReadTailRetry++
	}
	w.askedFrom = w.acked
	done := w.acked * q.mtu
	tx.BTH.Opcode = wire.RCReadRequest
	tx.RETH = wire.RETH{VA: w.remote + uint64(done), RKey: w.rkey, Length: w.length - done}
}

func buildAtomic(w *sendWQE, tx *wire.Packet) {
	tx.AtomicETH = wire.AtomicETH{VA: w.remote, RKey: w.rkey, SwapOrAdd: w.compareAdd}
	tx.BTH.Opcode = wire.RCFetchAdd
	if w.op == verbs.OpCmpSwap {
		tx.BTH.Opcode = wire.RCCmpSwap
		tx.AtomicETH.SwapOrAdd, tx.AtomicETH.Compare = w.swap, w.compareAdd
	}
}

// dataOpcodes are the opcodes of one SEND or WRITE operation by place in the message.
type dataOpcodes struct{ first, middle, last, only wire.Opcode }

var dataOps = [...]dataOpcodes{
	verbs.OpSend:     {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly},
	verbs.OpSendImm:  {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastImm, wire.RCSendOnlyImm},
	verbs.OpSendInv:  {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastInv, wire.RCSendOnlyInv},
	verbs.OpWrite:    {wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly},
	verbs.OpWriteImm: {wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLastImm, wire.RCWriteOnlyImm},
}

// buildData fills packet w.sent of a SEND or WRITE. The payload is read from memory now, also when it is sent
// again; an inline payload was kept.
func (q *QP) buildData(w *sendWQE, tx *wire.Packet, last bool, out *Actions) mem.Fault {
	ops := &dataOps[w.op]
	switch {
	case w.packets == 1:
		tx.BTH.Opcode = ops.only
	case w.sent == 0:
		tx.BTH.Opcode = ops.first
	case last:
		tx.BTH.Opcode = ops.last
	default:
		tx.BTH.Opcode = ops.middle
	}
	if w.sent == 0 && (w.op == verbs.OpWrite || w.op == verbs.OpWriteImm) {
		tx.RETH = wire.RETH{VA: w.remote, RKey: w.rkey, Length: w.length}
	}
	if last {
		tx.ImmDt, tx.IETH = w.imm, w.invRKey
		if w.op != verbs.OpSendImm && w.op != verbs.OpWriteImm {
			tx.ImmDt = 0
		}
		if w.op != verbs.OpSendInv {
			tx.IETH = 0
		}
		tx.BTH.Solicited = w.flags&verbs.Solicited != 0 && sendOps[w.op].solicit // IBTA 9.2.3
	}
	off := w.sent * q.mtu
	n := min(q.mtu, w.length-off)
	if n == 0 {
		return mem.OK
	}
	tx.Payload = out.alloc(int(n))
	if w.flags&verbs.Inline != 0 {
		copy(tx.Payload, q.sq.data(q.sq.send)[off:])
		return mem.OK
	}
	return q.gather(tx.Payload, q.sq.sgl(q.sq.send), off)
}

package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// sender is the send queue and the part of sending that the services share: posts, packets of SEND
// and WRITE, memory management operations and completions.
type sender struct {
	*core
	sq sendQueue
	// nextPSN is the first PSN for the next work request to be started.
	nextPSN wire.PSN
	// reads is the number of started work requests that need a response of their own (see answered).
	// It is at most MaxRdAtomic. If MaxRdAtomic is 0, it is at most 1, because the first such work
	// request then fails.
	reads int
	// draining is set in SQD until EventSQDrained is raised.
	draining bool
}

// reset empties the send queue; the work requests get no completions.
func (s *sender) reset() {
	s.sq.head, s.sq.send, s.sq.tail = 0, 0, 0
	s.nextPSN, s.reads, s.draining = 0, 0, false
}

// executeLocal executes and completes w, the oldest work request, which is a local operation. If it
// fails, its status is MWBindErr, a memory management operation error (IBTA 11.6.2).
func (s *sender) executeLocal(w *sendWQE, out *Actions) {
	var fault mem.Fault
	switch w.op {
	case verbs.OpBindMW:
		fault = s.env.Mem.Bind(s.cfg.PD, s.cfg.QPN, w.rkey, s.sq.sgl(s.sq.send)[0], w.access)
	case verbs.OpRegMR:
		fault = s.env.Mem.Register(s.cfg.PD, w.rkey, s.sq.sgl(s.sq.send)[0], w.access)
	default:
		fault = s.env.Mem.Invalidate(s.cfg.PD, s.cfg.QPN, w.invRKey, false)
	}
	if fault != mem.OK {
		w.status, w.fault = verbs.MWBindErr, fault
		return
	}
	s.completeSend(w, verbs.Success, reason.None, out)
}

// dataOpcodes are the opcodes of a SEND or WRITE operation, by the place of the packet in the
// message.
type dataOpcodes struct{ first, middle, last, only wire.Opcode }

var dataOps = [...]dataOpcodes{
	verbs.OpSend:     {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly},
	verbs.OpSendImm:  {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastImm, wire.RCSendOnlyImm},
	verbs.OpSendInv:  {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastInv, wire.RCSendOnlyInv},
	verbs.OpWrite:    {wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly},
	verbs.OpWriteImm: {wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLastImm, wire.RCWriteOnlyImm},
}

// buildData builds packet number w.sent of a SEND or WRITE. It reads the payload from memory, also
// for a retransmission, unless the payload was posted inline.
func (s *sender) buildData(w *sendWQE, tx *wire.Packet, last bool, out *Actions) mem.Fault {
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
	off := w.sent * s.mtu
	n := min(s.mtu, w.length-off)
	if n == 0 {
		return mem.OK
	}
	tx.Payload = out.alloc(int(n))
	if w.flags&verbs.Inline != 0 {
		copy(tx.Payload, s.sq.data(s.sq.send)[off:])
		return mem.OK
	}
	return s.access.gather(tx.Payload, s.sq.sgl(s.sq.send), off)
}

// completeSend removes the oldest work request, whether it was sent completely or not. A work
// request that has succeeded and is not signalled has no completion. code is the reason of an error.
func (s *sender) completeSend(w *sendWQE, status verbs.Status, code reason.Code, out *Actions) {
	if w.answered() && w.started {
		s.reads--
	}
	s.sawEnd(w.op, status)
	s.env.Counters.RdmaSends++
	switch status {
	case verbs.Success:
	case verbs.WRFlushErr:
		s.env.Counters.CqeFlushErr++
	default:
		s.env.Counters.CqeErr++
	}
	s.sq.head++
	if int32(s.sq.send-s.sq.head) < 0 {
		s.sq.send = s.sq.head
	}
	if status == verbs.Success && w.flags&verbs.Signalled == 0 {
		return
	}
	c := grown(&out.Done)
	c.To = s.sent
	c.WC.ID, c.WC.Status, c.WC.Opcode, c.WC.QPN = w.id, status, sendOps[w.op].wc, s.cfg.QPN
	c.WC.VendorErr = uint32(code)
	if w.answered() && w.op != verbs.OpAtomicWrite {
		c.WC.ByteLen = w.length
	}
}

// failOldest completes the oldest work request with an error status and ends the queue pair, which
// flushes the other work requests. code is the reason; None means a fault of its own memory or
// attributes, which is then looked for.
func (s *sender) failOldest(status verbs.Status, code reason.Code, out *Actions) {
	code = s.noteFailure(status, code)
	s.completeSend(s.sq.at(s.sq.head), status, code, out)
	s.qp.fault(reason.AfterFailure, out)
}

// flush completes all work requests with WRFlushErr. The reason is that of the queue pair's end.
func (s *sender) flush(out *Actions) {
	for s.sq.len() > 0 {
		s.completeSend(s.sq.at(s.sq.head), verbs.WRFlushErr, s.flushed, out)
	}
}

// checkDrained raises EventSQDrained in SQD when all started work requests are complete.
func (s *sender) checkDrained(out *Actions) {
	if s.draining && (s.sq.len() == 0 || !s.sq.at(s.sq.head).started) {
		s.draining = false
		s.raise(verbs.EventSQDrained, out)
	}
}

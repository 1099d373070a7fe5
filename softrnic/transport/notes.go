package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// healing is the state of a requester between a retry and the first acknowledgement after it.
type healing struct {
	open    bool
	since   clock.Time // of the first retry
	first   wire.PSN   // the oldest PSN that was sent again
	retries uint32
	before  uint64 // retransPkts at the first retry
	wr      reason.WorkRequest
}

// Notes returns the notes of the queue pair, which belong to it.
func (q *QP) Notes() *reason.Notes { return &q.core.notes }

// request describes the work request at position pos of the send queue.
func (s *sender) request(pos uint32) reason.WorkRequest {
	w := s.sq.at(pos)
	r := reason.WorkRequest{Number: uint64(pos) + 1, ID: w.id, Op: w.op, Length: w.length, First: w.first, Packets: w.packets}
	if !w.local() && w.op >= verbs.OpWrite {
		r.Addr, r.RKey = w.remote, w.rkey
	}
	return r
}

// noteRetry notes that everything from una on is sent again because of code. left is the number of
// retries that remain of `tries`.
func (r *requester) noteRetry(now clock.Time, code reason.Code, tries, left uint8) *reason.Note {
	if !r.heal.open {
		r.heal = healing{open: true, since: now, first: r.una, before: r.retransPkts, wr: r.sender.request(r.sender.sq.head)}
	}
	r.heal.retries++
	return r.notes.Add(reason.Note{
		At: now, Kind: reason.SentAgain, Code: code, WR: r.sender.request(r.sender.sq.head), First: r.una, Last: r.maxPSN.Add(-1),
		Times: r.heal.retries, Tries: tries, Left: left,
	})
}

// healed is called when PSNs have been acknowledged after a retry.
func (r *requester) healed() {
	h := &r.heal
	h.open = false
	r.notes.Add(reason.Note{
		At: r.lastNow, Kind: reason.Healed, Since: h.since, WR: h.wr, First: h.first, Last: r.una.Add(-1), Times: h.retries,
		Packets: uint32(r.retransPkts - h.before),
	})
}

// noteFailure notes why the oldest work request fails, and returns the code of its completion. code
// may be None for a fault of its memory.
func (s *sender) noteFailure(status verbs.Status, code reason.Code) reason.Code {
	pos := s.sq.head
	w := s.sq.at(pos)
	n := reason.Note{At: s.lastNow, Since: w.posted, Kind: reason.Failed, Status: status, WR: s.request(pos), First: w.first.Add(int(w.acked))}
	switch {
	case status == verbs.LocProtErr:
		n.Mem = s.access.refusedSGL(s.sq.sgl(pos), s.cfg.PD, w.answered())
		code = reason.OfLocal(n.Mem.Fault)
		n.Mem.Fault = mem.Fault(code-reason.LocalKey) + mem.BadKey
	case code == reason.LocalOp:
		n.Text = s.localFault(w, pos)
	case code == reason.None && status == verbs.LocQPOpErr:
		code = reason.NoReads
	}
	n.Code = code
	switch code {
	case reason.Timeout, reason.SequenceNak, reason.ImpliedNak, reason.NotReady:
		r := &s.qp.req
		n.First, n.Last, n.Tries = r.una, r.maxPSN.Add(-1), s.rts.RetryCount
		if code == reason.NotReady {
			n.Tries = s.rts.RNRRetry
		}
		if s.rts.Timeout != 0 {
			n.Wait = AckTimeout(s.rts.Timeout)
		}
	default: // it did not wait for an answer
	}
	s.notes.Add(n)
	return code
}

// localFault returns why a memory management operation has failed.
func (s *sender) localFault(w *sendWQE, pos uint32) string {
	text := w.op.String() + ": " + w.fault.String()
	if w.op != verbs.OpLocalInv {
		if x := s.access.refusedSGL(s.sq.sgl(pos), s.cfg.PD, false); x.Fault == w.fault {
			text = w.op.String() + ": " + x.String()
		}
	}
	return text
}

// noteMissed notes that packet p has arrived before others. It is called for the first packet behind
// a gap; the packets behind it are counted in the same note.
func (r *responder) noteMissed(p *wire.Packet) {
	r.notes.Add(reason.Note{
		At: r.lastNow, Kind: reason.Missed, Opcode: p.BTH.Opcode, Syndrome: wire.NakPSNSequence, First: r.ePSN, Last: p.BTH.PSN.Add(-1), Times: 1,
	})
}

// noteRepeated notes that an executed request has arrived again. Requests that follow each other are
// one note.
func (r *responder) noteRepeated(p *wire.Packet) {
	if n := r.notes.Newest(); n != nil && n.Kind == reason.Repeated && wire.Diff(p.BTH.PSN, n.First) >= 0 {
		n.Times++
		if wire.Diff(p.BTH.PSN, n.Last) > 0 {
			n.Last = p.BTH.PSN
		}
		return
	}
	r.notes.Add(reason.Note{At: r.lastNow, Kind: reason.Repeated, Opcode: p.BTH.Opcode, First: p.BTH.PSN, Last: p.BTH.PSN, Times: 1})
}

// noteNotReady notes that a request has found no receive. A request that comes again and again is
// one note.
func (r *responder) noteNotReady(p *wire.Packet, s wire.Syndrome) {
	kind := reason.Waited
	if s == 0 {
		kind = reason.Dropped
	}
	if n := r.notes.Newest(); n != nil && n.Kind == kind && n.Code == reason.NoReceive && (s == 0 || n.First == p.BTH.PSN) {
		n.Times++
		return
	}
	x := reason.Note{At: r.lastNow, Kind: kind, Code: reason.NoReceive, Opcode: p.BTH.Opcode, Syndrome: s, First: p.BTH.PSN, Last: p.BTH.PSN, Times: 1}
	if s != 0 {
		x.Wait = RNRDelay(s.Value())
	}
	r.notes.Add(x)
}

// noteRefusal notes why a request is refused, and returns the code. A service without answers drops
// the message; then the syndrome is 0.
func (r *responder) noteRefusal(v verdict, p *wire.Packet, info *wire.OpInfo, s wire.Syndrome) reason.Code {
	n := reason.Note{
		At: r.lastNow, Kind: reason.Refused, Code: refusals[v].code, Opcode: p.BTH.Opcode, Syndrome: s, First: p.BTH.PSN, Last: p.BTH.PSN, Times: 1,
	}
	if s == 0 && refusals[v].counter != countLocal {
		n.Kind = reason.Dropped
	}
	switch v {
	case refuseOperation:
		need, _ := operationRights(p, info)
		n.Value, n.Limit = uint64(need), uint64(r.init.Access)
	case refuseDepth:
		n.Value, n.Limit = uint64(r.answers.fresh()), uint64(r.answers.maxRdAtomic)
	case refuseLength:
		n.Packets, n.Limit, n.Value = uint32(len(p.Payload)), uint64(r.mtu), uint64(p.RETH.Length)
	case refuseTooLong:
		n.Value, n.Limit = uint64(r.exec.received)+uint64(len(p.Payload)), r.rcv.oldest().length
		if r.svc.datagram {
			n.Value = verbs.GRHLen + uint64(len(p.Payload))
		}
	case refuseAccess:
		n.Mem = r.exec.refusedMemory(p, info)
		n.Code = reason.OfRemote(n.Mem.Fault)
		n.Mem.Fault = mem.Fault(n.Code-reason.RemoteKey) + mem.BadKey
	case refuseAlignment:
		n.Value, _, _ = wordOf(p)
	case refuseInvalidate:
		n.Text = "the SEND invalidates a key, and " + r.env.Mem.RefusedInvalidate(r.access.guests, r.cfg.QPN, p.IETH, true)
	case refuseLocal:
		n.Mem = r.access.refusedSGL(r.rcv.sgl(), r.rcv.pd, true)
		n.Code = reason.OfReceive(n.Mem.Fault)
		n.Mem.Fault = mem.Fault(n.Code-reason.ReceiveKey) + mem.BadKey
	default: // the code says it all
	}
	r.notes.Add(n)
	return n.Code
}

// refusedMemory returns why a request may not access the memory that it names.
func (x *executor) refusedMemory(p *wire.Packet, info *wire.OpInfo) mem.Refusal {
	m, pd, qpn := x.env.Mem, x.access.guests, x.cfg.QPN
	need, _ := operationRights(p, info)
	switch {
	case info.Flags&wire.OpWrite != 0 && info.Flags&(wire.OpFirst|wire.OpOnly) == 0:
		return m.Refused(pd, qpn, x.rkey, x.va, uint32(len(p.Payload)), need)
	case info.Flags&wire.OpAtomic != 0:
		va, rkey, right := wordOf(p)
		return m.Refused(pd, qpn, rkey, va, atomicSize, right)
	}
	length := p.RETH.Length
	if info.Flags&wire.OpFlush != 0 && p.FETH.Level == wire.FlushRegion {
		length = 1
	}
	return m.Refused(pd, qpn, p.RETH.RKey, p.RETH.VA, length, need)
}

// noteQKey notes that a datagram was dropped because of its Q_Key.
func (r *responder) noteQKey(p *wire.Packet) {
	if n := r.notes.Newest(); n != nil && n.Code == reason.WrongQKey && n.Value == uint64(p.DETH.QKey) {
		n.Times++
		return
	}
	r.notes.Add(reason.Note{
		At: r.lastNow, Kind: reason.Dropped, Code: reason.WrongQKey, Opcode: p.BTH.Opcode, First: p.BTH.PSN, Last: p.BTH.PSN, Times: 1,
		Value: uint64(p.DETH.QKey), Limit: uint64(r.init.QKey),
	})
}

// noteLost notes that packets before p were lost, on an unreliable connection, which asks for none
// again.
func (r *responder) noteLost(p *wire.Packet) {
	if wire.Diff(p.BTH.PSN, r.ePSN) <= 0 {
		return // it comes late or again: nothing in front of it is missing
	}
	r.notes.Add(reason.Note{At: r.lastNow, Kind: reason.Missed, Opcode: p.BTH.Opcode, First: r.ePSN, Last: p.BTH.PSN.Add(-1)})
}

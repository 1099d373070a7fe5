package transport

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// handleResponse takes an acknowledgement or response. One for what is not outstanding is a ghost (IBTA 9.7.6.1/ghost).
func (q *QP) handleResponse(now clock.Time, p *wire.Packet, out *Actions) {
	psn, op := p.BTH.PSN, p.BTH.Opcode
	if q.req.offset(psn) >= q.req.offset(q.req.maxPSN) {
		q.saw(op, "stale")
		q.env.Counters.DuplicateAck++ // an old one, or a ghost for what was never sent
		return
	}
	switch op {
	case wire.RCAck:
		q.handleAETH(now, p, out)
	case wire.RCAtomicAck:
		if q.acknowledge(now, psn, out) {
			q.atomicAnswer(p, out)
		}
	default:
		if q.acknowledge(now, psn, out) {
			q.readAnswer(p, out)
		}
	}
	q.pump(now, out)
	q.checkDrained(out)
}

// nakStatuses turns a fatal NAK code into the status of the work request it is for (IBTA 9.7.5/codes).
var nakStatuses = map[wire.Syndrome]verbs.Status{
	wire.NakInvalid:      verbs.RemInvReqErr,
	wire.NakRemoteAccess: verbs.RemAccessErr,
	wire.NakRemoteOp:     verbs.RemOpErr,
}

// handleAETH takes an ACK, NAK or RNR NAK whose PSN is outstanding.
func (q *QP) handleAETH(now clock.Time, p *wire.Packet, out *Actions) {
	psn, s := p.BTH.PSN, p.AETH.Syndrome
	if s.IsAck() {
		q.sawAnswer(s)
		q.acknowledge(now, psn.Next(), out)
		return
	}
	if q.req.rnrAt != clock.Never && psn == q.req.una && (s.IsRNR() || s == wire.NakPSNSequence) {
		// The packets that were already behind a refused one draw a sequence NAK. Waiting goes on.
		q.saw(p.BTH.Opcode, "while waiting")
		q.env.Counters.DuplicateAck++
		return
	}
	// A NAK acknowledges everything before it (IBTA 9.7.5/nak-acknowledges).
	if !q.acknowledge(now, psn, out) {
		return
	}
	q.sawAnswer(s)
	switch {
	case s.IsRNR():
		q.receiverNotReady(now, s.Value(), out)
	case s == wire.NakPSNSequence:
		q.env.Counters.PacketSeqErr++
		q.nakked(now, out)
	default:
		q.fatalNak(s, out)
	}
}

// fatalNak ends the work request at una and the connection.
func (q *QP) fatalNak(s wire.Syndrome, out *Actions) {
	status, ok := nakStatuses[s]
	c := q.env.Counters
	switch {
	case !ok:
		c.BadResponse++
		status = verbs.BadRespErr // a reserved code
	case s == wire.NakInvalid:
		c.RemoteInvalidErr++
	case s == wire.NakRemoteAccess:
		c.RemoteAccessErr++
	case s == wire.NakRemoteOp:
		c.RemoteOpErr++
	}
	q.failOldest(status, out)
}

// acknowledge takes everything before end as received. It stops at a READ or atomic that has not been answered:
// that is an implied NAK, and the result is false.
func (q *QP) acknowledge(now clock.Time, end wire.PSN, out *Actions) bool {
	moved := false
	for q.req.una != end {
		w := q.sq.at(q.sq.head)
		if w.answered() {
			if moved {
				q.progress()
			}
			q.sawRetry("implied NAK")
			q.impliedNak(now, out)
			return false
		}
		moved = true
		q.advance(w, min(q.req.offset(end), w.packets-w.acked), out)
	}
	if moved {
		q.progress()
	}
	return true
}

// advance acknowledges n packets of the oldest work request.
func (q *QP) advance(w *sendWQE, n uint32, out *Actions) {
	before := w.inFlight()
	w.acked += n
	q.req.una = q.req.una.Add(int(n))
	if !w.answered() {
		w.sent = max(w.sent, w.acked) // an answer from before a retry overtakes the retry
	}
	q.req.flight += w.inFlight() - before
	q.widen(int(n))
	if w.acked == w.packets {
		q.completeSend(w, verbs.Success, out)
	}
}

// positive reports that the AETH of an answer, if it has one, says ACK: what refuses travels alone, without data (IBTA
// 9.7.5.1/positive).
func positive(p *wire.Packet) bool {
	return !p.BTH.Opcode.Has(wire.HasAETH) || p.AETH.Syndrome.IsAck()
}

// readAnswer takes a READ response packet at una.
func (q *QP) readAnswer(p *wire.Packet, out *Actions) {
	w := q.sq.at(q.sq.head)
	if w.op != verbs.OpRead || !positive(p) || !q.fitsRead(w, p) {
		q.saw(p.BTH.Opcode, "bad")
		q.badResponse(out)
		return
	}
	if q.scatter(q.cfg.PD, q.sq.sgl(q.sq.head), w.acked*q.mtu, p.Payload) != mem.OK {
		q.saw(p.BTH.Opcode, "local")
		q.failOldest(verbs.LocProtErr, out)
		return
	}
	q.saw(p.BTH.Opcode, "taken")
	q.advance(w, 1, out)
	q.progress()
}

// fitsRead checks opcode and length of the response packet that is due (IBTA 9.7.6.1/response). A
// response to the request for a tail may start afresh (FIRST, ONLY) or go on (MIDDLE, LAST): responders do both.
func (q *QP) fitsRead(w *sendWQE, p *wire.Packet) bool {
	op := p.BTH.Opcode
	missing := w.length - w.acked*q.mtu
	ends := op.Is(wire.OpLast | wire.OpOnly)
	begins := op.Is(wire.OpFirst | wire.OpOnly)
	switch {
	case begins && w.acked != w.askedFrom, !begins && w.acked == 0:
		return false
	case missing > q.mtu:
		return !ends && len(p.Payload) == int(q.mtu)
	}
	return ends && len(p.Payload) == int(missing)
}

// atomicAnswer takes an atomic's original value at una.
func (q *QP) atomicAnswer(p *wire.Packet, out *Actions) {
	w := q.sq.at(q.sq.head)
	if w.op != verbs.OpCmpSwap && w.op != verbs.OpFetchAdd || !positive(p) {
		q.saw(p.BTH.Opcode, "bad")
		q.badResponse(out)
		return
	}
	var word [atomicSize]byte
	binary.NativeEndian.PutUint64(word[:], p.AtomicAck)
	if q.scatter(q.cfg.PD, q.sq.sgl(q.sq.head), 0, word[:]) != mem.OK {
		q.saw(p.BTH.Opcode, "local")
		q.failOldest(verbs.LocProtErr, out)
		return
	}
	q.saw(p.BTH.Opcode, "taken")
	q.advance(w, 1, out)
	q.progress()
}

// badResponse ends the connection for an answer of another kind or length than the oldest work request has.
func (q *QP) badResponse(out *Actions) {
	q.env.Counters.BadResponse++
	q.failOldest(verbs.BadRespErr, out)
}

// failOldest completes the oldest work request with a status, and the rest with flushes.
func (q *QP) failOldest(status verbs.Status, out *Actions) {
	q.completeSend(q.sq.at(q.sq.head), status, out)
	q.fault(out)
}

// completeSend retires the oldest work request. Without error and signal there is no completion.
func (q *QP) completeSend(w *sendWQE, status verbs.Status, out *Actions) {
	if w.answered() && w.started {
		q.req.rdOut--
	}
	q.sawEnd(w.op, status)
	q.env.Counters.RdmaSends++
	switch status {
	case verbs.Success:
	case verbs.WRFlushErr:
		q.env.Counters.CqeFlushErr++
	default:
		q.env.Counters.CqeErr++
	}
	q.sq.head++
	if int32(q.sq.send-q.sq.head) < 0 {
		q.sq.send = q.sq.head
	}
	if status == verbs.Success && w.flags&verbs.Signalled == 0 {
		return
	}
	wc := verbs.WC{ID: w.id, Status: status, Opcode: sendOps[w.op].wc, QPN: q.cfg.QPN}
	if w.answered() {
		wc.ByteLen = w.length
	}
	out.Done = append(out.Done, Completion{CQ: q.cfg.SendCQ, WC: wc})
}

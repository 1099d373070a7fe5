package transport

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxOutstandingPSNs is half of the PSN space: if more PSNs were in flight, a responder could not
// tell new requests from old ones (IBTA 9.7.1/window).
const maxOutstandingPSNs = 1 << 23

// requester is the sending half of a reliable connection. Three PSNs describe its progress. They
// are always in this order, and a response can arrive for any PSN from una up to maxPSN, exclusive.
//
//	una            oldest PSN that is not acknowledged
//	  ≤ maxPSN     one past the highest PSN ever sent
//	    ≤ nextPSN  first PSN for the next work request to be started
type requester struct {
	*core
	sender      sender
	una, maxPSN wire.PSN
	window      flowWindow
	pace        pacing
	retry       retransmission
	// retransPkts counts the retransmitted packets of this queue pair. The NIC's counter of the same
	// name counts those of all queue pairs.
	retransPkts uint64
	heal        healing
	// sel is not nil if the connection uses selective retransmission.
	sel *selectiveSender
}

// start sets PSNs, window and retry counters at the transition to RTS.
func (r *requester) start(a verbs.ToRTS) {
	r.window = flowWindow{size: r.cfg.Window, limit: r.cfg.Window}
	r.una, r.maxPSN = a.SendPSN, a.SendPSN
	r.retry.start(a)
	if r.sel = nil; r.selects() {
		r.sel = r.newSelectiveSender()
	}
}

// reset empties the send queue and forgets the connection. The counter of retransmissions stays.
func (r *requester) reset() {
	r.una, r.maxPSN, r.window, r.retry, r.heal, r.sel = 0, 0, flowWindow{}, retransmission{}, healing{}, nil
	r.retry.stop()
	r.pace.reset()
	r.sender.reset()
}

// offset returns how many PSNs p is after una. PSNs in flight have offsets from 0 to 2^23
// inclusive, because a READ of 2^31 bytes at path MTU 256 takes exactly 2^23 PSNs. That is one
// offset more than wire.Diff can distinguish.
func (r *requester) offset(p wire.PSN) uint32 { return uint32(p-r.una) & max24 }

// pump sends as many packets as the window, fences and limits allow: at most one window in one
// call. If the oldest work request cannot be executed, pump makes it fail.
func (r *requester) pump(now clock.Time, out *Actions) {
	if r.sel != nil {
		r.sel.pump(now, out)
		return
	}
	if r.state != verbs.StateRTS && r.state != verbs.StateSQD {
		return
	}
	for r.retry.rnrAt == clock.Never && r.sender.sq.send != r.sender.sq.tail {
		w := r.sender.sq.at(r.sender.sq.send)
		if !w.started && !r.startWQE(w) {
			break
		}
		if w.status != verbs.Success || r.window.full() {
			break
		}
		if w.local() {
			r.sender.executeLocal(w, out)
			continue
		}
		if r.cfg.Flow != nil && r.mustWait(now) {
			break
		}
		r.sendPacket(w, out)
		if r.cfg.Flow != nil && w.status == verbs.Success {
			r.paced(now, out)
		}
		if w.sent >= w.requests() {
			r.sender.sq.send++
		}
	}
	if w := r.sender.sq.at(r.sender.sq.head); r.sender.sq.len() > 0 && w.status != verbs.Success {
		r.sender.failOldest(w.status, w.code(), out)
		return
	}
	if r.window.flight > 0 && r.retry.at == clock.Never && r.retry.rnrAt == clock.Never {
		r.armTimer(now)
	}
}

// startWQE assigns PSNs to w, or returns false if w must wait. If w can never be executed, startWQE
// assigns them, too, and sets the error status with which w will complete.
func (r *requester) startWQE(w *sendWQE) bool {
	oldest := r.sender.sq.send == r.sender.sq.head
	switch {
	case r.state == verbs.StateSQD:
		return false
	case w.local() && !oldest:
		// A local operation waits for all work requests before it, and all behind it wait for it. So no
		// retransmission can need the key that it changes, and no retransmission can execute the
		// operation twice (IBTA 10.8.3/local).
		return false
	case w.flags&verbs.Fence != 0 && r.sender.reads > 0:
		return false // IBTA 10.8.3/fence
	case w.answered() && r.sender.reads >= r.rts.MaxRdAtomic && r.rts.MaxRdAtomic > 0:
		return false // the responder has no free resource for another READ or atomic, IBTA 9.7.3/depth
	}
	packets := (w.length + r.mtu - 1) / r.mtu
	switch {
	case w.local():
		packets = 0
	case packets == 0:
		packets = 1
	}
	if r.offset(r.sender.nextPSN)+packets > maxOutstandingPSNs {
		return false
	}
	w.started, w.first, w.packets = true, r.sender.nextPSN, packets
	r.sender.nextPSN = w.first.Add(int(packets))
	if w.answered() {
		r.sender.reads++
		if r.rts.MaxRdAtomic == 0 {
			w.status = verbs.LocQPOpErr // the transition to RTS allowed no READs and atomics
		}
	}
	if (packets > 1 || w.answered()) && w.flags&verbs.Inline == 0 && r.access.checkSGL(r.sender.sq.sgl(r.sender.sq.send), w.answered()) != mem.OK {
		w.status = verbs.LocProtErr
	}
	return true
}

// sendPacket sends the next packet of w, which is the entry at position sq.send of the send queue.
func (r *requester) sendPacket(w *sendWQE, out *Actions) {
	tx := r.newPacket(out)
	psn, last := w.first.Add(int(w.sent)), w.sent+1 == w.packets
	switch {
	case w.op == verbs.OpRead:
		psn, last = w.first.Add(int(w.acked)), true
		r.buildRead(w, tx)
	case w.op == verbs.OpAtomicWrite:
		w.buildAtomicWrite(tx, out)
	case w.op == verbs.OpFlush:
		w.buildFlush(tx)
	case w.answered():
		w.buildAtomic(tx)
	default:
		if r.sender.buildData(w, tx, last, out) != mem.OK {
			w.status = verbs.LocProtErr
			out.Tx = out.Tx[:len(out.Tx)-1]
			return
		}
	}
	tx.BTH.Opcode |= r.svc.opcodes
	tx.XRCETH.SRQN = w.srqn
	tx.BTH.PSN = psn
	before := w.inFlight()
	w.sent++
	r.window.flight += w.inFlight() - before
	tx.BTH.AckReq = r.window.asksAck(last, r.cfg.AckEvery)
	end := psn.Next()
	if w.answered() {
		end = w.first.Add(int(w.packets))
	}
	if r.offset(psn) < r.offset(r.maxPSN) {
		r.env.Counters.RetransPkts++
		r.retransPkts++
	}
	if r.offset(end) > r.offset(r.maxPSN) {
		r.maxPSN = end
	}
}

// buildRead builds the request packet of a READ. A retry requests only the part for which no
// response has arrived.
func (r *requester) buildRead(w *sendWQE, tx *wire.Packet) {
	if w.acked > 0 {
		r.env.Counters.ReadTailRetry++
	}
	w.askedFrom = w.acked
	done := w.acked * r.mtu
	tx.BTH.Opcode = wire.RCReadRequest
	tx.RETH = wire.RETH{VA: w.remote + uint64(done), RKey: w.rkey, Length: w.length - done}
}

// buildAtomicWrite builds the request packet of an ATOMIC_WRITE. The value is in host byte order,
// as in a WRITE.
func (w *sendWQE) buildAtomicWrite(tx *wire.Packet, out *Actions) {
	tx.BTH.Opcode = wire.RCAtomicWrite
	tx.RETH = wire.RETH{VA: w.remote, RKey: w.rkey, Length: atomicSize}
	tx.Payload = out.alloc(atomicSize)
	binary.NativeEndian.PutUint64(tx.Payload, w.swap)
}

func (w *sendWQE) buildFlush(tx *wire.Packet) {
	tx.BTH.Opcode = wire.RCFlush
	tx.RETH.RKey = w.rkey
	if w.flush.Region {
		tx.FETH.Level = wire.FlushRegion
	} else {
		tx.RETH.VA, tx.RETH.Length = w.remote, w.flush.Length
	}
	if w.flush.Global {
		tx.FETH.Placement |= wire.FlushGlobal
	}
	if w.flush.Persistent {
		tx.FETH.Placement |= wire.FlushPersistent
	}
}

func (w *sendWQE) buildAtomic(tx *wire.Packet) {
	tx.AtomicETH = wire.AtomicETH{VA: w.remote, RKey: w.rkey, SwapOrAdd: w.compareAdd}
	if w.op == verbs.OpCmpSwap || w.op == verbs.OpMaskedCmpSwap {
		tx.AtomicETH.SwapOrAdd, tx.AtomicETH.Compare = w.swap, w.compareAdd
	}
	switch w.op {
	case verbs.OpCmpSwap:
		tx.BTH.Opcode = wire.RCCmpSwap
	case verbs.OpFetchAdd:
		tx.BTH.Opcode = wire.RCFetchAdd
	case verbs.OpMaskedCmpSwap:
		tx.BTH.Opcode, tx.Masks = wire.RCMaskedCmpSwap, w.masks
	default:
		tx.BTH.Opcode, tx.Masks.CompareOrBoundary = wire.RCMaskedFetchAdd, w.masks.CompareOrBoundary
	}
}

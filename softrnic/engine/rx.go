package engine

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Frame takes a received frame. The port number is of no interest: this NIC has one port. Acknowledgements may be
// held back until EndBatch; until then Deadline is due. A super-frame is taken packet by packet.
func (e *Engine) Frame(now clock.Time, _ int, f packetio.Frame, out *packetio.Batch) {
	if !e.up {
		return
	}
	if f.Splittable() {
		for i := range f.Packets() {
			e.segment = f.AppendSegment(e.segment[:0], i)
			e.receive(now, e.segment, out)
		}
	} else {
		e.receive(now, f.Data, out)
	}
	e.drainLoop(now, out)
}

// EndBatch sends the acknowledgements that were held back while frames of a receive batch came in, and brings the
// deadline up to date.
func (e *Engine) EndBatch(now clock.Time, out *packetio.Batch) {
	e.flushTouched(now, out)
	e.drainLoop(now, out)
}

func (e *Engine) flushTouched(now clock.Time, out *packetio.Batch) {
	for _, qp := range e.touched {
		qp.touched = false
		if !qp.dead {
			qp.q.FlushAcks(now, &e.acts)
			e.apply(now, qp, out)
		}
	}
	clear(e.touched)
	e.touched = e.touched[:0]
}

// receive checks one packet and hands it to its queue pair.
func (e *Engine) receive(now clock.Time, b []byte, out *packetio.Batch) {
	if !e.isMyMAC(b) {
		return
	}
	f := &e.rx
	if err := wire.ParseFrame(b, f); err != nil {
		if !errors.Is(err, wire.ErrNotRoCE) {
			e.counters.RxMalformed++
		}
		return
	}
	if !e.sound(b, f) {
		return
	}
	if f.BTH.DestQP == gsiQPN {
		e.receiveMAD(now, b, f, out)
		return
	}
	qp := e.accept(f)
	if qp == nil {
		return
	}
	e.counters.RcvdPkts++
	e.counters.RcvdBytes += uint64(len(b))
	if qp.awaited {
		e.gsiPacketSeen(now, qp, out)
	}
	if qp.connected() {
		qp.q.Handle(now, &f.Packet, &e.acts)
	} else {
		qp.q.HandleDatagram(now, &f.Packet, ipHeader(b, f), &e.acts)
	}
	if !qp.touched {
		if len(e.touched) == 0 {
			e.batchAt = now
		}
		qp.touched = true
		e.touched = append(e.touched, qp)
	}
	e.deliver(now, qp, out)
}

// isMyMAC looks at the destination MAC, before anything else is parsed. Frames to groups are for the host's own
// stack and are passed over in silence.
func (e *Engine) isMyMAC(b []byte) bool {
	if len(b) >= 6 && wire.MAC(b[:6]) == e.cfg.MAC {
		return true
	}
	if len(b) >= 6 && b[0]&1 == 0 {
		e.counters.RxNotMine++
	}
	return false
}

// sound makes those checks of the package comment behind parsing that need no queue pair, and counts what it drops.
func (e *Engine) sound(b []byte, f *wire.Frame) bool {
	c := &e.counters
	if !e.addressedToMe(f) {
		c.RxNotMine++
		return false
	}
	if !e.cfg.NoICRCCheck && !wire.CheckICRC(b) {
		e.saw(f, "corrupt")
		c.RxIcrcErr++
		return false
	}
	if f.BTH.Opcode == wire.CNP {
		c.RxCnp++ // there is no congestion control to be told
		return false
	}
	// A reserved opcode of a reliable connection is the responder's to refuse, so that its peer learns of it (IBTA 9.7.4.1/reserved).
	if !f.BTH.Opcode.Known() && f.BTH.Opcode.Service() != wire.ServiceRC || f.BTH.Version != 0 {
		c.RxUnsupported++
		return false
	}
	return true
}

// accept makes the other checks, counts what it drops, and returns the queue pair.
func (e *Engine) accept(f *wire.Frame) *QP {
	c := &e.counters
	qp := e.qps[f.BTH.DestQP]
	if qp == nil || !qp.receives() {
		c.RxUnknownQP++
		return nil
	}
	if f.BTH.Opcode.Service() != qp.q.Service() {
		c.RxUnsupported++
		return nil
	}
	if qp.connected() && !qp.route.fromPeer(f) {
		e.saw(f, "wrong peer")
		c.RxWrongPeer++
		return nil
	}
	if !samePartition(f.BTH.PKey, qp.pkey) {
		e.saw(f, "P_Key")
		c.RxPkeyErr++
		return nil
	}
	return qp
}

// samePartition compares P_Keys: the same partition, and at least one side a full member (IBTA 10.9.3).
func samePartition(a, b uint16) bool {
	const member = 0x8000
	return a&^member == b&^member && (a|b)&member != 0
}

// receives reports whether the queue pair takes packets in its state.
func (q *QP) receives() bool {
	switch q.q.State() {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
		return true
	case verbs.StateReset, verbs.StateInit, verbs.StateError:
	}
	return false
}

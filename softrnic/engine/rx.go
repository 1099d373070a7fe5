package engine

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// receivePath is the state of the receive side between two calls of Frame.
type receivePath struct {
	frame  wire.Frame
	sealer wire.Sealer
	// segments splits the super-frame that is being received into its packets.
	segments packetio.Segments
	// touched are the queue pairs that have received packets in the current batch. EndBatch updates
	// their deadlines and sends the ACKs that they hold back. batchAt is when the first of them
	// received a packet.
	touched []*QP
	batchAt clock.Time
}

// touch records that qp has received a packet in the current batch.
func (r *receivePath) touch(now clock.Time, qp *QP) {
	if qp.touched {
		return
	}
	if len(r.touched) == 0 {
		r.batchAt = now
	}
	qp.touched = true
	r.touched = append(r.touched, qp)
}

// Frame handles a received frame. The port number is ignored: this NIC has one port.
// Acknowledgements may be held back until EndBatch; as long as they are, Deadline is due at once,
// so that Tick sends them. Frame splits a super-frame into its packets in place, which overwrites
// its bytes.
func (e *Engine) Frame(now clock.Time, _ int, f packetio.Frame, out *packetio.Batch) {
	if !e.Tables.up {
		return
	}
	if f.Open != nil {
		e.rx.open(now, e, f.Open, out)
	} else if n := e.rx.segments.Open(f); n > 0 {
		for i := range n {
			e.receive(now, e.rx.segments.Packet(i), out)
		}
	} else {
		e.receive(now, f.Data, out)
	}
	e.drainLoop(now, out)
}

// EndBatch sends the acknowledgements that were held back during a receive batch, and updates the
// deadline.
func (e *Engine) EndBatch(now clock.Time, out *packetio.Batch) {
	e.flushTouched(now, out)
	e.drainLoop(now, out)
}

func (e *Engine) flushTouched(now clock.Time, out *packetio.Batch) {
	for _, qp := range e.rx.touched {
		qp.touched = false
		if !qp.dead {
			qp.q.FlushAcks(now, &e.acts)
			e.apply(now, qp, out)
		}
	}
	clear(e.rx.touched)
	e.rx.touched = e.rx.touched[:0]
}

// receive checks one packet and passes it to its queue pair.
func (e *Engine) receive(now clock.Time, b []byte, out *packetio.Batch) {
	if mine, other := e.Port.isMyMAC(b); !mine {
		if other {
			e.counters.RxNotMine++
		}
		return
	}
	f := &e.rx.frame
	if err := wire.ParseFrame(b, f); err != nil {
		if !errors.Is(err, wire.ErrNotRoCE) {
			e.counters.RxMalformed++
		} else if b[0]&1 != 0 {
			e.Tables.groups.queried(now, b, e.cfg.Rand)
		}
		return
	}
	if !e.wellFormed(b, f) {
		return
	}
	if f.BTH.Opcode == wire.CNP {
		e.notifier.handle(e, now, f)
		return
	}
	if f.Eth.Dst.IsMulticast() {
		e.Tables.groups.of(f).receive(e, now, b, f, out)
		return
	}
	if f.BTH.DestQP == gsiQPN {
		e.receiveMAD(now, b, f, out)
		return
	}
	e.rx.toQP(now, e, f, b, len(b), out)
}

// open is Engine.receive for a packet that was not encoded: it makes the same checks, without those of
// the encoding.
func (r *receivePath) open(now clock.Time, e *Engine, o *packetio.Open, out *packetio.Batch) {
	f := &o.Frame
	if f.Eth.Dst != e.cfg.MAC || !e.Port.isMine(destGID(f)) && !e.Tables.wasMine(f) {
		e.counters.RxNotMine++
		return
	}
	if f.BTH.DestQP == gsiQPN {
		e.counters.RxUnsupported++ // no management datagram, which would not be open
		return
	}
	r.toQP(now, e, f, nil, o.Len(), out)
}

// toQP passes a packet of n bytes to its queue pair. b is its encoding, which only datagrams have.
func (r *receivePath) toQP(now clock.Time, e *Engine, f *wire.Frame, b []byte, n int, out *packetio.Batch) {
	qp := e.accept(f)
	if qp == nil {
		return
	}
	e.counters.RcvdPkts++
	e.counters.RcvdBytes += uint64(n)
	if f.ECN() == wire.CE {
		e.notifier.marked(e, now, qp, f, out)
	}
	if qp.awaited {
		e.gsi.packetSeen(now, qp, out)
	}
	if qp.connected() {
		qp.q.Handle(now, &f.Packet, &e.acts)
	} else {
		qp.q.HandleDatagram(now, &f.Packet, ipHeader(b, f), &e.acts)
	}
	r.touch(now, qp)
	e.deliver(now, qp, out)
}

// wellFormed makes the checks that need a parsed packet but no queue pair: VLAN, destination
// address, ICRC and opcode. The package comment lists all checks. wellFormed counts the packets
// that it drops.
func (e *Engine) wellFormed(b []byte, f *wire.Frame) bool {
	c := &e.counters
	mine := false
	if f.Eth.Dst.IsMulticast() {
		mine = e.Tables.groups.of(f) != nil
	} else {
		mine = e.Port.isMine(destGID(f)) || e.Tables.wasMine(f)
	}
	// The NIC has no address in any VLAN. VLAN 0 means no VLAN: the tag only carries a priority
	// (IEEE 802.1Q).
	if f.Eth.Tagged && f.Eth.VLAN() != 0 || !mine {
		c.RxNotMine++
		return false
	}
	if !e.cfg.NoICRCCheck && !e.rx.sealer.Check(b) {
		e.Tables.saw(f, "corrupt")
		c.RxIcrcErr++
		return false
	}
	// A packet with a reserved opcode of a reliable connection goes on to the responder, which
	// sends a NAK (IBTA 9.7.4.1/reserved).
	if !f.BTH.Opcode.Known() && !f.BTH.Opcode.Reliable() || f.BTH.Version != 0 {
		c.RxUnsupported++
		return false
	}
	return true
}

// wasMine reports whether a packet is for a connected queue pair whose address was removed from the
// port's table: it goes on with that address.
func (t *tables) wasMine(f *wire.Frame) bool {
	qp := t.qps[f.BTH.DestQP]
	return qp != nil && qp.connected() && qp.route.fromPeer(f)
}

// accept makes the checks that need a queue pair: its state, its service, its peer and its P_Key.
// It returns the queue pair, or nil for a packet that it drops and counts.
func (e *Engine) accept(f *wire.Frame) *QP {
	c := &e.counters
	qp := e.Tables.qps[f.BTH.DestQP]
	if qp == nil || !qp.receives() {
		c.RxUnknownQP++
		return nil
	}
	if !qp.q.Hears(f.BTH.Opcode) {
		c.RxUnsupported++
		return nil
	}
	if qp.connected() && !qp.route.fromPeer(f) {
		e.Tables.saw(f, "wrong peer")
		c.RxWrongPeer++
		return nil
	}
	if !verbs.SamePartition(f.BTH.PKey, qp.pkey) {
		e.Tables.saw(f, "P_Key")
		c.RxPkeyErr++
		return nil
	}
	return qp
}

func (q *QP) receives() bool {
	switch q.q.State() {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
		return true
	case verbs.StateReset, verbs.StateInit, verbs.StateError:
	}
	return false
}

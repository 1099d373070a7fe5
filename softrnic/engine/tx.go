package engine

import (
	"bytes"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxLoopRounds limits how many times one step delivers packets that the NIC has sent to itself: a
// delivery may make the NIC send itself further packets. The next Tick, which is due at once,
// delivers the rest.
const maxLoopRounds = 64

// apply carries out the actions of a step of qp and updates its deadline.
func (e *Engine) apply(now clock.Time, qp *QP, out *packetio.Batch) {
	e.deliver(now, qp, out)
	e.sched.rekey(qp)
}

// deliver adds the completions and events of a step of qp to their queues and builds its frames, in
// the order that Actions prescribes. A completion queue that overflows raises at most one event,
// and the queue pairs that use it go to the error state, which flushes their work requests. The
// completions of the flushed work requests may overflow other completion queues, too. The loop ends
// because each queue pair flushes only once.
func (e *Engine) deliver(now clock.Time, qp *QP, out *packetio.Batch) {
	e.carryOut(now, qp, out)
	e.verbFaults.fail(now, e, out)
	for len(e.overflowed) > 0 {
		c := e.overflowed[0]
		e.overflowed = e.overflowed[:copy(e.overflowed, e.overflowed[1:])]
		c.overflowed = false
		if !c.failed {
			c.failed = true
			e.raise(verbs.AsyncEvent{Kind: verbs.EventCQErr, CQ: c.q.ID()})
			c.breakSRQs()
		}
		for _, user := range e.Tables.order {
			if user.send != c && user.recv != c || !user.live() {
				continue
			}
			_ = user.q.Fail(now, reason.ByOverrun, &e.acts) // cannot fail: the queue pair is in neither RESET nor ERROR
			e.raise(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: user.q.Num()})
			e.carryOut(now, user, out)
			e.sched.rekey(user)
		}
	}
}

// carryOut carries out the actions of one step of qp: completions, asynchronous events and packets.
func (e *Engine) carryOut(now clock.Time, qp *QP, out *packetio.Batch) {
	a := &e.acts
	if len(a.Done) > 0 {
		e.Events.activity++
		e.rings.completed(now, e, qp)
	}
	if srq := qp.taking(); srq != nil && srq.s.LimitReached() {
		e.raise(verbs.AsyncEvent{Kind: verbs.EventSRQLimit, SRQ: srq.num})
	}
	for _, ev := range a.Async {
		e.raise(ev)
	}
	for i := range a.Tx {
		e.transmit(qp, &a.Tx[i], out)
	}
	if e.tx.pages != nil {
		e.tx.pages.Rest() // also if no packet has come of a payload: a work request that fails has asked for memory
		if e.tx.trimAt == clock.Never && len(a.Tx) > 0 {
			e.tx.trimAt = now.Add(trimEvery)
		}
	}
	switch ended := qp.q.Notes().Ended(); {
	case ended && !qp.ended:
		e.Hooks.failed(qp)
	case !ended: // from SQE back to RTS
		qp.ended = false
	}
	a.Reset()
}

// complete adds a completion to its completion queue, unless an injected fault holds it back.
func (e *Engine) complete(now clock.Time, d *transport.Completion) {
	if e.Hooks.Faults != nil && e.verbFaults.take(now, e, d) {
		return
	}
	enqueue(now, e, d)
}

// enqueue adds a completion to its completion queue. If the queue is full, enqueue adds the completion
// queue to e.overflowed, which deliver handles.
func enqueue(now clock.Time, e *Engine, d *transport.Completion) {
	q := d.To.CQ()
	due := q.Deadline()
	pushed := d.To.Push(now, &d.WC)
	if pushed && q.Deadline() == due {
		return
	}
	c := e.Tables.cqs[q.ID()]
	if c != nil {
		e.moderated.due.Set(c.place, q.Deadline())
	}
	if pushed {
		return
	}
	e.counters.CqOverrun++
	if c != nil && !c.overflowed {
		c.overflowed = true
		e.overflowed = append(e.overflowed, c)
	}
}

type transmitPath struct {
	// pages has the memory for packets that are not encoded (Config.Open); nil means that all are.
	pages  *packetio.Pages
	trimAt clock.Time // when pages gives back the memory of a burst, if no packet is made until then
	frame  wire.Frame
	sealer wire.Sealer
	ipID   uint16 // identification of the next IPv4 packet
	// loop has packets from this NIC to itself; loopRx is the batch of them that is being
	// delivered.
	loop, loopRx packetio.Batch
	// late has the packets of the NIC to itself that arrive later because of Config.Loopback, oldest
	// first.
	late []latePacket
}

// trimEvery: a NIC that has made no open packets for so long gives their memory back, at the latest after
// twice this time.
const trimEvery = time.Second

// trim gives back the memory of open packets if it is time.
func (t *transmitPath) trim(now clock.Time) {
	switch {
	case t.trimAt > now:
	case t.pages.Trim():
		t.trimAt = clock.Never
	default:
		t.trimAt = now.Add(trimEvery)
	}
}

// latePacket is a packet from a NIC to itself; at is when it arrives.
type latePacket struct {
	at clock.Time
	b  []byte
}

// head sets the headers in front of the BTH according to route r, and returns the frame with them.
func (t *transmitPath) head(r *route, srcPort uint16) *wire.Frame {
	t.headOf(&t.frame, r, srcPort)
	return &t.frame
}

func (t *transmitPath) headOf(f *wire.Frame, r *route, srcPort uint16) {
	f.Eth, f.V6, f.UDP = r.eth, r.v6, r.udp
	f.UDP.SrcPort = srcPort
	if r.v6 {
		f.IPv6 = r.ipv6
	} else {
		f.IPv4 = r.ipv4
		f.IPv4.ID = t.ipID
		t.ipID++
	}
}

// emitOpen appends packet p of a connection to out without encoding it.
func (t *transmitPath) emitOpen(p *wire.Packet, r *route, out *packetio.Batch, c *metrics.NIC) {
	o := t.pages.New()
	t.headOf(&o.Frame, r, r.udp.SrcPort)
	o.Frame.Packet = *p
	t.pages.Add(out, o)
	c.SentPkts++
	c.SentBytes += uint64(o.Len())
}

// emit appends the frame with packet p to `out`, or to loop if the NIC is its own peer, and returns
// the frame's bytes.
func (t *transmitPath) emit(p *wire.Packet, r *route, out *packetio.Batch, c *metrics.NIC) []byte {
	if r.local {
		out = &t.loop
	}
	b := t.sealer.AppendWith(out.Alloc(t.frame.LenWith(p)), &t.frame, p)
	out.Add(0, b)
	c.SentPkts++
	c.SentBytes += uint64(len(b))
	return b
}

// repeat adds a copy of frame b, which is addressed to a multicast group, to the packets that the
// NIC sends to itself.
func (t *transmitPath) repeat(b []byte) { t.loop.Add(0, append(t.loop.Alloc(len(b)), b...)) }

// transmit builds the frame of one packet in out. A datagram whose address handle was destroyed is
// not sent. A packet that does not fit the link is counted, and lost.
func (e *Engine) transmit(qp *QP, p *transport.TxPacket, out *packetio.Batch) {
	r := &qp.route
	if qp.opens(e) {
		p.Packet.BTH.PKey = qp.pkey
		e.tx.emitOpen(&p.Packet, r, out, &e.counters)
		return
	}
	port := r.udp.SrcPort
	if p.AH != 0 {
		ah := e.Tables.ahs[p.AH]
		if ah == nil {
			return
		}
		if r = &ah.route; r.udp.SrcPort != 0 {
			port = r.udp.SrcPort // derived from the flow label of the address
		}
	}
	f := e.tx.head(r, port)
	if e.cfg.Congestion != nil && !mayBeMarked(p.Packet.BTH.Opcode) {
		f.SetECN(wire.NotECT)
	}
	p.Packet.BTH.PKey = qp.pkey
	if !r.local && !e.Port.holds(f, &p.Packet) {
		e.counters.TooLong++
		return
	}
	b := e.tx.emit(&p.Packet, r, out, &e.counters)
	if r.group && e.Tables.groups.byGID[destGID(f)] != nil {
		e.tx.repeat(b)
	}
}

// opens reports whether packets of the queue pair leave open: those that only their peer looks at.
func (q *QP) opens(e *Engine) bool {
	return e.tx.pages != nil && q.connected() && !q.route.local && !e.Port.shrunk && e.cfg.Congestion == nil
}

// arrival returns when the next packet of the NIC to itself arrives.
func (t *transmitPath) arrival() clock.Time {
	if len(t.late) == 0 {
		return clock.Never
	}
	return t.late[0].at
}

// drainLoop delivers the packets that the NIC has sent to itself, if they have arrived.
func (e *Engine) drainLoop(now clock.Time, out *packetio.Batch) {
	if e.cfg.Loopback > 0 {
		e.tx.drainLate(now, e, out)
		return
	}
	for range maxLoopRounds {
		if len(e.tx.loop.Frames) == 0 {
			return
		}
		e.tx.loop, e.tx.loopRx = e.tx.loopRx, e.tx.loop
		e.tx.loop.Reset()
		for _, f := range e.tx.loopRx.Frames {
			e.receive(now, f.Data, out)
		}
		e.flushTouched(now, out)
	}
}

// drainLate is drainLoop if Config.Loopback is not 0: each packet arrives Config.Loopback after it
// was sent.
func (t *transmitPath) drainLate(now clock.Time, e *Engine, out *packetio.Batch) {
	for {
		for _, f := range t.loop.Frames {
			t.late = append(t.late, latePacket{now.Add(e.cfg.Loopback), bytes.Clone(f.Data)})
		}
		t.loop.Reset()
		if t.arrival() > now {
			return
		}
		for t.arrival() <= now {
			p := t.late[0]
			t.late = t.late[1:]
			e.receive(now, p.b, out)
		}
		e.flushTouched(now, out)
	}
}

package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxLoopRounds bounds how often packets of the NIC to itself are delivered in one step; what is left waits for
// the next Tick, which is due at once.
const maxLoopRounds = 64

// apply does what a step of qp asked for and re-keys its deadline.
func (e *Engine) apply(now clock.Time, qp *QP, out *packetio.Batch) {
	e.deliver(now, qp, out)
	e.rekey(qp)
}

// deliver hands out the completions and events of a step of qp and builds its frames, in the order that Actions
// promises. Completion queues that overflow take their queue pairs into the error state, and tell so by one event in
// their life. The flushes may overflow again, but only live queue pairs flush, each once, which bounds the loop.
func (e *Engine) deliver(now clock.Time, qp *QP, out *packetio.Batch) {
	e.carryOut(qp, out)
	for len(e.overflowed) > 0 {
		c := e.overflowed[0]
		e.overflowed = e.overflowed[:copy(e.overflowed, e.overflowed[1:])]
		c.overflowed = false
		if !c.failed {
			c.failed = true
			e.raise(verbs.AsyncEvent{Kind: verbs.EventCQErr, CQ: c.q.ID()})
		}
		for _, user := range e.order {
			if user.send != c && user.recv != c || !user.live() {
				continue
			}
			_ = user.q.ToError(now, &e.acts) // a live queue pair can always go to ERROR
			e.raise(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: user.q.Num()})
			e.carryOut(user, out)
			e.rekey(user)
		}
	}
}

func (e *Engine) carryOut(qp *QP, out *packetio.Batch) {
	a := &e.acts
	if len(a.Done) > 0 {
		e.activity++
	}
	for i := range a.Done {
		e.complete(&a.Done[i])
	}
	if qp.srq != nil && qp.srq.s.LimitReached() {
		e.raise(verbs.AsyncEvent{Kind: verbs.EventSRQLimit, SRQ: qp.srq.num})
	}
	for _, ev := range a.Async {
		e.raise(ev)
	}
	for i := range a.Tx {
		e.transmit(qp, &a.Tx[i], out)
	}
	a.Reset()
}

func (e *Engine) complete(d *transport.Completion) {
	if d.CQ.Push(d.WC) {
		return
	}
	e.counters.CqOverrun++
	c := e.cqs[d.CQ.ID()]
	if c != nil && !c.overflowed {
		c.overflowed = true
		e.overflowed = append(e.overflowed, c)
	}
}

// transmit builds the frame of one packet in out. A datagram whose address handle is gone has nowhere to go.
func (e *Engine) transmit(qp *QP, p *transport.TxPacket, out *packetio.Batch) {
	f, r := &e.tx, &qp.route
	port := r.udp.SrcPort
	if p.AH != 0 {
		ah := e.ahs[p.AH]
		if ah == nil {
			return
		}
		r = &ah.route
	}
	f.Eth, f.V6, f.UDP = r.eth, r.v6, r.udp
	f.UDP.SrcPort = port
	if r.v6 {
		f.IPv6 = r.ipv6
	} else {
		f.IPv4 = r.ipv4
		f.IPv4.ID = e.ipID
		e.ipID++
	}
	f.Packet = p.Packet
	f.BTH.PKey = qp.pkey
	if r.local {
		out = &e.loop
	}
	b := f.AppendTo(out.Alloc(f.Len()))
	out.Add(0, b)
	e.counters.SentPkts++
	e.counters.SentBytes += uint64(len(b))
}

// drainLoop delivers packets that the NIC sent to itself.
func (e *Engine) drainLoop(now clock.Time, out *packetio.Batch) {
	for range maxLoopRounds {
		if len(e.loop.Frames) == 0 {
			return
		}
		e.loop, e.loopRx = e.loopRx, e.loop
		e.loop.Reset()
		for _, f := range e.loopRx.Frames {
			e.receive(now, f.Data, out)
		}
		e.flushTouched(now, out)
	}
}

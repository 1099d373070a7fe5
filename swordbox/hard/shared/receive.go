package shared

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Packet takes a packet that the server sent to OwnQPN. The caller has checked that it came from there.
func (c *Conn) Packet(ctx *pipeline.Ctx, f *wire.Frame) {
	if c.state != Up {
		c.stats.Ghosts++
		return
	}
	switch {
	case f.BTH.Opcode.Is(wire.OpResponse):
		c.busy, c.answer = true, f.BTH
		c.response(ctx, f)
		if c.refused {
			c.endRefused(ctx, false)
		}
		c.busy, c.answer = false, wire.BTH{}
		c.pump(ctx)
	case f.BTH.Opcode.Is(wire.OpRequest) && f.BTH.Opcode.Service() == wire.ServiceRC:
		c.request(ctx, f)
	default:
		c.stats.BadResponses++
	}
}

// response takes an answer (IBTA 9.7.6).
func (c *Conn) response(ctx *pipeline.Ctx, f *wire.Frame) {
	d := wire.Diff(f.BTH.PSN, c.unaPSN)
	if d < 0 || uint32(d) >= c.high-c.una {
		c.stats.Ghosts++ // an old one, or one for what was never sent
		return
	}
	pos := c.una + uint32(d)
	op, s := f.BTH.Opcode, f.AETH.Syndrome
	switch {
	case op == wire.RCAck && s.IsAck():
		c.cover(ctx, pos+1)
	case op == wire.RCAck:
		c.nak(ctx, pos, s)
	case !s.IsAck():
		c.stats.BadResponses++ // what refuses travels alone (IBTA 9.7.5.1)
	case op == wire.RCAtomicAck && c.at(pos).bth.Opcode.Is(wire.OpAtomic):
		if c.cover(ctx, pos) {
			c.progress()
			c.finish(ctx, Answer{Kind: Atomic, Prior: f.AtomicAck})
		}
	case op == wire.RCReadResponseOnly && c.at(pos).bth.Opcode == wire.RCReadRequest && len(f.Payload) == int(c.at(pos).reth.Length):
		if c.cover(ctx, pos) {
			c.progress()
			c.finish(ctx, Answer{Kind: Read, Frame: f})
		}
	default:
		c.stats.BadResponses++
	}
}

// progress is called when the server has executed something that was not known to be: it is there.
func (c *Conn) progress() {
	if c.refused {
		return // its time is running
	}
	c.heard()
	c.naks, c.implied = 0, false
	c.rtoAt, c.rnrAt = clock.Never, clock.Never // pump arms the timer if something is on the wire
}

// cover takes everything before a position as executed. It stops at a READ or atomic, whose answer has been lost: they
// are asked for again, and the result is false.
func (c *Conn) cover(ctx *pipeline.Ctx, end uint32) bool {
	for c.una != end {
		if c.at(c.una).answered() {
			if !c.implied && !c.refused {
				c.stats.Implied++
				c.replay(ctx)
				c.implied = true
			}
			return false
		}
		c.progress()
		c.finish(ctx, Answer{Kind: Acked})
	}
	return true
}

// replay sends everything from the oldest request on again, for the server says that something is missing.
func (c *Conn) replay(ctx *pipeline.Ctx) {
	c.heard()
	if c.naks++; c.naks > c.cfg.Naks {
		c.fail(ctx, Lost, "the server refuses the same request again and again")
		return
	}
	c.rewind()
}

// nak takes a NAK for a position, which acknowledges everything before (IBTA 9.7.5).
func (c *Conn) nak(ctx *pipeline.Ctx, pos uint32, s wire.Syndrome) {
	if c.rnrAt != clock.Never && pos == c.una && (s.IsRNR() || s == wire.NakPSNSequence) {
		return // of what was behind the refused one. Waiting goes on
	}
	fatal := !s.IsRNR() && s != wire.NakPSNSequence
	if !fatal && !c.cover(ctx, pos) {
		return
	}
	switch {
	case fatal && !c.refused:
		// Nothing is sent any more, for the server does nothing any more. An answer to what is before the guilty one may
		// still be on its way.
		c.stats.Refusals++
		c.refused, c.guilty, c.syndrome = true, pos, s
		c.rtoAt, c.rnrAt = ctx.Now.Add(c.cfg.RTO), clock.Never
		c.endRefused(ctx, false)
	case fatal:
	case s.IsRNR():
		c.stats.RNRs++
		c.heard()
		c.naks = 0
		c.rewind()
		c.rnrAt = ctx.Now.Add(transport.RNRDelay(s.Value()))
	case s == wire.NakPSNSequence:
		c.stats.SeqNaks++
		c.replay(ctx)
	}
}

// endRefused ends a connection on which the server has refused a request, as soon as what is before that one has been
// answered. With force it waits no longer for READs and atomics whose answers are missing: they were executed, and nobody
// knows what they found. What is behind the guilty one was not executed (IBTA 9.9.3).
func (c *Conn) endRefused(ctx *pipeline.Ctx, force bool) {
	for c.una != c.guilty {
		a := Answer{Kind: Acked}
		if c.at(c.una).answered() {
			if !force {
				return
			}
			c.stats.Lost++
			a.Kind = Lost
		}
		c.finish(ctx, a)
	}
	if !c.user.Retry(c.at(c.guilty).tag) {
		c.finish(ctx, Answer{Kind: Refused, Syndrome: c.syndrome})
	}
	c.fail(ctx, Returned, "the server refused a request: "+c.syndrome.String())
}

// request takes a request of the server. There is no memory and no receive here: data is acknowledged and dropped, what
// wants data is refused.
func (c *Conn) request(ctx *pipeline.Ctx, f *wire.Frame) {
	c.stats.FromServer++
	op := f.BTH.Opcode
	d := wire.Diff(f.BTH.PSN, c.recvPSN)
	switch {
	case d > 0:
		if !c.recvNak {
			c.recvNak = true
			c.reply(ctx, c.recvPSN, wire.NakPSNSequence)
		}
		return
	case op.Is(wire.OpRead | wire.OpAtomic):
		c.reply(ctx, f.BTH.PSN, wire.NakInvalid)
		return
	case d == 0:
		c.recvNak = false
		c.recvPSN = c.recvPSN.Next()
		if op.Is(wire.OpLast | wire.OpOnly) {
			c.recvMSN++
		}
	}
	if f.BTH.AckReq {
		c.reply(ctx, c.recvPSN.Add(-1), wire.AckNoCredits)
	}
}

func (c *Conn) reply(ctx *pipeline.Ctx, psn wire.PSN, s wire.Syndrome) {
	c.link.To.NAK(&c.tx, psn, c.recvMSN, s)
	note := ""
	if ctx.Observed() {
		note = "the switch is no memory: " + s.String()
	}
	ctx.Emit(&c.tx, note)
}

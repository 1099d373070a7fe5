package requester

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Packet handles a packet to OwnQPN. The caller has checked that the server sent it.
func (c *Conn) Packet(ctx *pipeline.Ctx, f *wire.Frame) {
	if c.Requests.state != Up {
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

// response handles a response of the server (IBTA 9.7.6).
func (c *Conn) response(ctx *pipeline.Ctx, f *wire.Frame) {
	d := wire.Diff(f.BTH.PSN, c.Requests.unaPSN)
	if d < 0 || uint32(d) >= c.Requests.high-c.Requests.una {
		c.stats.Ghosts++ // a late response, or a response to a request that was never sent
		return
	}
	pos := c.Requests.una + uint32(d)
	op, s := f.BTH.Opcode, f.AETH.Syndrome
	switch {
	case op == wire.RCAck && s.IsAck():
		c.cover(ctx, pos+1)
	case op == wire.RCAck:
		c.nak(ctx, pos, s)
	case !s.IsAck():
		c.stats.BadResponses++ // a NAK is never coalesced with another response (IBTA 9.7.5.1)
	case op == wire.RCAtomicAck && c.Requests.at(pos).bth.Opcode.Is(wire.OpAtomic):
		if c.cover(ctx, pos) {
			c.progress()
			c.finish(ctx, Answer{Kind: Atomic, Prior: f.AtomicAck})
		}
	case op == wire.RCReadResponseOnly && c.Requests.at(pos).bth.Opcode == wire.RCReadRequest && len(f.Payload) == int(c.Requests.at(pos).reth.Length):
		if c.cover(ctx, pos) {
			c.progress()
			c.finish(ctx, Answer{Kind: Read, Frame: f})
		}
	default:
		c.stats.BadResponses++
	}
}

// progress is called when an answer shows that the server has executed one more request. It resets
// tries and naks.
func (c *Conn) progress() {
	if c.refused {
		return // rtoAt bounds the wait for the answers to requests before the refused one
	}
	c.heard()
	c.naks, c.implied = 0, false
	c.rtoAt, c.rnrAt = clock.Never, clock.Never // pump arms the timer if a request is in flight
}

// cover completes the requests before position end: an acknowledgement of a later request has shown
// that they were executed. If one of them is a READ or an atomic without response, the response was
// lost. Then cover returns false and, unless implied or refused is true, retransmits this request
// and all later ones.
func (c *Conn) cover(ctx *pipeline.Ctx, end uint32) bool {
	for c.Requests.una != end {
		if c.Requests.at(c.Requests.una).answered() {
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

// replay retransmits all requests from the oldest one on. It is called when an answer of the server
// shows that a packet was lost.
func (c *Conn) replay(ctx *pipeline.Ctx) {
	c.heard()
	if c.naks++; c.naks > c.Requests.cfg.Naks {
		c.fail(ctx, Lost, "the server refuses the same request again and again")
		return
	}
	c.rewind()
}

// nak handles a NAK of the request at position pos. The NAK acknowledges all requests before pos
// (IBTA 9.7.5).
func (c *Conn) nak(ctx *pipeline.Ctx, pos uint32, s wire.Syndrome) {
	if c.rnrAt != clock.Never && pos == c.Requests.una && (s.IsRNR() || s == wire.NakPSNSequence) {
		return // packets behind the request that got the RNR NAK caused this NAK; the RNR wait continues
	}
	fatal := !s.IsRNR() && s != wire.NakPSNSequence
	if !fatal && !c.cover(ctx, pos) {
		return
	}
	switch {
	case fatal && !c.refused:
		// The server's queue pair is in the error state, so the switch sends nothing more. Answers
		// to requests before the refused one may still arrive.
		c.stats.Refusals++
		c.refused, c.guilty, c.syndrome = true, pos, s
		c.rtoAt, c.rnrAt = ctx.Now.Add(c.Requests.cfg.RTO), clock.Never
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

// endRefused ends a connection on which the server has refused a request, once all earlier requests
// have been answered. If force is true, it does not wait: READs and atomics without a response end
// as Lost, because they were executed but their results are not known. The server has not executed
// the requests behind the refused one (IBTA 9.9.3).
func (c *Conn) endRefused(ctx *pipeline.Ctx, force bool) {
	for c.Requests.una != c.guilty {
		a := Answer{Kind: Acked}
		if c.Requests.at(c.Requests.una).answered() {
			if !force {
				return
			}
			c.stats.Lost++
			a.Kind = Lost
		}
		c.finish(ctx, a)
	}
	if !c.user.Retry(c.Requests.at(c.guilty).tag) {
		c.finish(ctx, Answer{Kind: Refused, Syndrome: c.syndrome})
	}
	c.fail(ctx, Returned, "the server refused a request: "+c.syndrome.String())
}

// request handles a request of the server. The switch has no memory and no receives. It
// acknowledges SENDs and WRITEs and drops their data; it refuses READs and atomics.
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
	c.Requests.link.To.NAK(&c.tx, psn, c.recvMSN, s)
	note := ""
	if ctx.Observed() {
		note = "the switch has no memory: " + s.String()
	}
	ctx.Emit(&c.tx, note)
}

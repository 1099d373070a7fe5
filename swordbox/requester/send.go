package requester

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// maySend reports whether the next request may be sent now: window and depth have room, no RNR wait is
// running, and Limits.Rate allows it.
func (c *Conn) maySend() bool {
	return c.Requests.next != c.Requests.tail && c.mayPass(c.Requests.at(c.Requests.next).answered())
}

// mayPass reports whether a request may be sent at position next. answered says whether it is a
// READ or an atomic.
func (c *Conn) mayPass(answered bool) bool {
	return c.Requests.state == Up && !c.refused && !c.pace.paused() && c.rnrAt == clock.Never && int(c.Requests.next-c.Requests.una) < c.window &&
		// the responder has resources for Depth READs and atomics, IBTA 9.7.3
		(c.Requests.reads < c.Requests.link.Depth || !answered)
}

// depart changes f, the request at position next, into the packet to send. It counts the packet and
// moves next past it. The result is the packet's note for captures.
func (c *Conn) depart(ctx *pipeline.Ctx, f *wire.Frame) (note string) {
	e := c.Requests.at(c.Requests.next)
	psn := c.Requests.unaPSN.Add(int(c.Requests.next - c.Requests.una))
	if e.answered() {
		c.Requests.reads++
	}
	if c.Requests.next == c.Requests.high {
		c.Requests.high++
	}
	c.Requests.next++
	note = c.note(ctx, e, psn)
	c.stats.Sent++
	if e.sent {
		c.stats.Resent++
		if e.once {
			c.stats.Emptied++
		}
	}
	e.sent = true
	c.pace.mark(f)
	transform.Request(f, &c.Requests.link.To, psn)
	n := f.Len()
	c.stats.Bytes += uint64(n)
	if c.pace.spend(ctx.Now, n) {
		c.stats.Pauses++
	}
	return note
}

// pump sends the requests that window and depth allow.
func (c *Conn) pump(ctx *pipeline.Ctx) {
	c.pace.resume(ctx.Now)
	for c.maySend() {
		c.load(c.Requests.at(c.Requests.next))
		note := c.depart(ctx, &c.tx)
		ctx.Emit(&c.tx, note)
	}
	if c.Requests.state == Up && c.rnrAt == clock.Never {
		c.arm(ctx.Now)
	}
}

// note describes a transmission for captures; "" if Ctx.Observed is false. It also tells a Follower
// that a client's request leaves on this connection (Ctx.Moved).
func (c *Conn) note(ctx *pipeline.Ctx, e *entry, psn wire.PSN) string {
	if !ctx.Observed() {
		return ""
	}
	n := transform.Note{From: e.bth.Opcode, To: e.bth.Opcode, Conn: c.Requests.cfg.Number, PSN: e.tag.PSN, NewPSN: psn}
	c.user.Describe(e.tag, &n)
	if n.QPN != 0 {
		server := c.Requests.link.Peer()
		from := pipeline.RequestID{Server: server, QPN: n.QPN, PSN: e.tag.PSN}
		ctx.Moved(from, pipeline.RequestID{Server: server, QPN: c.Requests.link.To.DestQP, PSN: psn})
	}
	if e.sent {
		n.Why = "retransmitted by the switch"
		if e.once {
			n.Why += " without its bytes"
		}
	}
	return n.String()
}

// fail ends the connection, and ends all unfinished requests with the given kind of answer. The
// Conn must not send them on the next connection, because another incarnation of the server may
// answer there. Kind Returned means that the server has executed none of them.
func (c *Conn) fail(ctx *pipeline.Ctx, kind Kind, why string) {
	c.stats.Failures++
	c.Requests.state, c.refused = Down, false
	c.rewind()
	c.rnrAt = clock.Never
	if why != "" {
		c.user.Failed(ctx, why)
	}
	for c.Requests.una != c.Requests.tail {
		if kind == Lost {
			c.stats.Lost++
		}
		c.finish(ctx, Answer{Kind: kind})
	}
}

// finish ends the oldest request.
func (c *Conn) finish(ctx *pipeline.Ctx, a Answer) {
	e := c.Requests.at(c.Requests.una)
	if c.Requests.next == c.Requests.una {
		c.Requests.next++
	} else if e.answered() {
		c.Requests.reads--
	}
	if c.Requests.high == c.Requests.una {
		c.Requests.high++
	}
	c.Requests.una++
	c.Requests.unaPSN = c.Requests.unaPSN.Next()
	a.Op, a.PSN = c.answer.Opcode, c.answer.PSN
	c.user.Done(ctx, e.tag, a)
}

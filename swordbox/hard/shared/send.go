package shared

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// maySend reports whether ring, depth and an RNR wait let the next request go.
func (c *Conn) maySend() bool {
	return c.state == Up && !c.refused && c.rnrAt == clock.Never && c.next != c.tail && int(c.next-c.una) < c.window &&
		(c.reads < c.link.Depth || !c.at(c.next).answered()) // no more than the responder has resources for, IBTA 9.7.3
}

// passed moves next over an entry that is being sent, and returns its PSN.
func (c *Conn) passed(e *entry) wire.PSN {
	psn := c.unaPSN.Add(int(c.next - c.una))
	if e.answered() {
		c.reads++
	}
	if c.next == c.high {
		c.high++
	}
	c.next++
	return psn
}

// arm starts the timer, if something is on the wire and it is not running.
func (c *Conn) arm(now clock.Time) {
	if c.rtoAt == clock.Never && c.high != c.una {
		c.rtoAt = now.Add(c.rto())
	}
}

// doublings is how often the time-out doubles. The requests of all clients wait for one answer here, and each client has its
// own NIC's retries meanwhile, which are over after some eight time-outs of 4 ms: a switch that waits for 8, 16 and 32 ms
// after a few losses in a row uses them up for all. A server that is silent for longer is asked for the oldest request
// only, so that it is no flood.
const doublings = 2

// rto is the present time-out.
func (c *Conn) rto() time.Duration { return c.cfg.RTO << min(c.tries, doublings) }

// heard is called when the server shows that it is there.
func (c *Conn) heard() { c.tries, c.silent, c.window = 0, 0, c.cfg.Ring }

// pump sends what ring and depth allow.
func (c *Conn) pump(ctx *pipeline.Ctx) {
	for c.maySend() {
		e := c.at(c.next)
		c.send(ctx, e, c.passed(e))
	}
	if c.state == Up && c.rnrAt == clock.Never {
		c.arm(ctx.Now)
	}
}

// send puts a copy on the wire.
func (c *Conn) send(ctx *pipeline.Ctx, e *entry, psn wire.PSN) {
	note := c.note(ctx, e, psn)
	c.count(e)
	c.load(e)
	rewrite.Request(&c.tx, &c.link.To, psn)
	ctx.Emit(&c.tx, note)
}

// count notes a transmission.
func (c *Conn) count(e *entry) {
	c.stats.Sent++
	if e.sent {
		c.stats.Resent++
	}
	e.sent = true
}

// note explains a transmission, if somebody captures.
func (c *Conn) note(ctx *pipeline.Ctx, e *entry, psn wire.PSN) string {
	if !ctx.Observed() {
		return ""
	}
	n := rewrite.Note{From: e.bth.Opcode, To: e.bth.Opcode, Conn: c.cfg.Number, PSN: e.tag.PSN, NewPSN: psn}
	c.user.Describe(e.tag, &n)
	if e.sent {
		n.Why = "sent again by the switch"
	}
	return n.String()
}

// rewind makes the oldest request the next to be sent. What was sent may still be answered.
func (c *Conn) rewind() {
	c.next, c.reads = c.una, 0
	c.rtoAt = clock.Never
}

// Tick does what is due.
func (c *Conn) Tick(ctx *pipeline.Ctx) {
	if c.rnrAt <= ctx.Now {
		c.rnrAt = clock.Never
		c.pump(ctx)
	}
	if c.refused && c.rtoAt <= ctx.Now {
		c.endRefused(ctx, true)
	}
	if c.rtoAt <= ctx.Now {
		c.stats.Timeouts++
		c.implied = false
		if c.silent += c.rto(); c.silent >= c.cfg.Silence {
			c.fail(ctx, Lost, "the server does not answer")
			return
		}
		if c.tries++; c.tries > doublings {
			c.window = 1
		}
		c.rewind()
		c.pump(ctx)
	}
}

// Deadline is when Tick wants to be called.
func (c *Conn) Deadline() clock.Time {
	if c.rnrAt != clock.Never {
		return c.rnrAt // silence while we wait is no time-out
	}
	return c.rtoAt
}

// fail ends the connection, and every request that is left: none of them may reach a successor, for nobody knows whether what
// answers there is the same life of the server. With kind Returned the server has said that it will execute none of them.
func (c *Conn) fail(ctx *pipeline.Ctx, kind Kind, why string) {
	c.stats.Failures++
	c.state, c.refused = Down, false
	c.rtoAt, c.rnrAt = clock.Never, clock.Never
	c.next, c.reads = c.una, 0
	if why != "" {
		c.user.Failed(ctx, why)
	}
	for c.una != c.tail {
		if kind == Lost {
			c.stats.Lost++
		}
		c.finish(ctx, Answer{Kind: kind})
	}
	c.next, c.high, c.reads = c.una, c.una, 0
}

// finish ends the oldest request.
func (c *Conn) finish(ctx *pipeline.Ctx, a Answer) {
	e := c.at(c.una)
	if c.next == c.una {
		c.next++
	} else if e.answered() {
		c.reads--
	}
	if c.high == c.una {
		c.high++
	}
	c.una++
	c.unaPSN = c.unaPSN.Next()
	a.Op, a.PSN = c.answer.Opcode, c.answer.PSN
	c.user.Done(ctx, e.tag, a)
}

package requester

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// arm starts the ACK timer if a request is in flight and the timer is not running.
func (c *Conn) arm(now clock.Time) {
	if c.rtoAt == clock.Never && c.high != c.una {
		c.rtoAt = now.Add(c.rto())
	}
}

// doublings is how often the timeout doubles. The requests of all clients wait for the same answer.
// Meanwhile each client's NIC uses up its own retries, which end after about eight timeouts of 4
// ms. If the switch waited for 8, 16 and 32 ms after a few losses in succession, the retries of all
// clients would run out. After this number of timeouts the switch retransmits only the oldest
// request, so that it does not flood the server.
const doublings = 2

// rto returns the present timeout.
func (c *Conn) rto() time.Duration { return c.cfg.RTO << min(c.tries, doublings) }

// heard is called when an answer shows that the server is alive.
func (c *Conn) heard() { c.tries, c.silent, c.window = 0, 0, c.cfg.Ring }

// rewind makes the oldest unanswered request the next one to send. The server may still answer
// earlier transmissions.
func (c *Conn) rewind() {
	c.next, c.reads = c.una, 0
	c.rtoAt = clock.Never
}

// Tick handles the timers that have expired.
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

// Deadline returns when Tick must be called.
func (c *Conn) Deadline() clock.Time {
	if c.rnrAt != clock.Never {
		return c.rnrAt // the ACK timer does not run during an RNR wait
	}
	return c.rtoAt
}

package requester

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// arm starts the ACK timer if a request is in flight and the timer is not running. It does not run while
// Limits.Rate holds back the retransmission of the oldest request.
func (c *Conn) arm(now clock.Time) {
	if c.rtoAt == clock.Never && c.Requests.high != c.Requests.una && (c.Requests.next != c.Requests.una || !c.pace.paused()) {
		c.rtoAt = now.Add(c.rto())
	}
}

// doublings is how often in succession the timeout doubles at most. It is small, because the
// requests of all clients on the connection wait until the server answers. Meanwhile each client's
// NIC uses up its own retries, which end after about eight timeouts of 4 ms. If the switch waited
// for 8, 16 and 32 ms after a few losses in succession, the retries of all clients would run out.
// After more timeouts than this number, the switch retransmits only the oldest request, so that it
// does not flood the server.
const doublings = 2

// rto returns the present timeout.
func (c *Conn) rto() time.Duration { return c.Requests.cfg.RTO << min(c.tries, doublings) }

// heard is called when an answer shows that the server is alive.
func (c *Conn) heard() { c.tries, c.silent, c.window = 0, 0, c.Requests.cfg.Ring }

// rewind makes the oldest unanswered request the next one to send. The server may still answer
// earlier transmissions.
func (c *Conn) rewind() {
	c.Requests.next, c.Requests.reads = c.Requests.una, 0
	c.rtoAt = clock.Never
}

// Tick handles the timers that have expired.
func (c *Conn) Tick(ctx *pipeline.Ctx) {
	if c.rnrAt <= ctx.Now {
		c.rnrAt = clock.Never
		c.pump(ctx)
	}
	if c.pace.until <= ctx.Now {
		c.pump(ctx)
	}
	if c.refused && c.rtoAt <= ctx.Now {
		c.endRefused(ctx, true)
	}
	if c.rtoAt <= ctx.Now {
		c.stats.Timeouts++
		c.implied = false
		if c.silent += c.rto(); c.silent >= c.Requests.cfg.Silence {
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
	return clock.Min(c.rtoAt, c.pace.until)
}

// Stats counts what a Conn did.
type Stats struct {
	Submitted    uint64 `name:"submitted" help:"requests accepted from clients"`
	NoRoom       uint64 `name:"no_room" help:"requests refused because ring and queue were full"`
	Sent         uint64 `name:"sent" help:"packets sent"`
	Bytes        uint64 `name:"bytes" help:"bytes of these packets, without FCS"`
	Pauses       uint64 `name:"pauses" help:"packets after which the cap of a rule let no packet leave for a while"`
	Resent       uint64 `name:"resent" help:"packets retransmitted"`
	Emptied      uint64 `name:"emptied" help:"WRITEs retransmitted without their bytes, of which the switch keeps no copy"`
	Timeouts     uint64 `name:"timeouts" help:"timeouts: the server did not answer in time"`
	SeqNaks      uint64 `name:"sequence_naks" help:"sequence NAKs of the server"`
	RNRs         uint64 `name:"rnr_naks" help:"RNR NAKs of the server"`
	Implied      uint64 `name:"implied_losses" help:"answers that skipped a READ or an atomic"`
	Refusals     uint64 `name:"refusals" help:"fatal NAKs of the server"`
	Lost         uint64 `name:"lost" help:"requests of which it is not known whether they were executed"`
	Ghosts       uint64 `name:"ghosts" help:"responses to no request in flight"`
	BadResponses uint64 `name:"bad_responses" help:"responses whose kind does not match the request"`
	FromServer   uint64 `name:"from_server" help:"requests that the server sent on the connection"`
	Failures     uint64 `name:"failures" help:"connections that failed"`
}

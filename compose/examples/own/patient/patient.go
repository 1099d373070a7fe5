// Package patient is a congestion control: a queue pair lowers its rate when a round trip takes long.
package patient

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

const (
	target = 200 * time.Microsecond // round trips above it lower the rate
	step   = 10_000_000             // what each other round trip adds, in bits a second
)

func init() {
	congestion.Register("patient", func(p *congestion.Params) congestion.Controller { return &patient{p: p, rate: p.MaxRate} })
}

// patient is the state of one queue pair.
type patient struct {
	p    *congestion.Params
	rate int64
	next clock.Time // no cut before
}

func (c *patient) Acked(now clock.Time, a congestion.Ack) {
	switch {
	case a.RTT > target && now >= c.next:
		c.rate = max(c.rate*9/10, c.p.MinRate)
		c.next = now.Add(a.RTT)
	case a.RTT > 0 && a.RTT <= target:
		c.rate = min(c.rate+step, c.p.MaxRate)
	}
}

func (c *patient) Limit() (bitsPerSecond int64, window int) { return c.rate, 0 }
func (*patient) Sent(clock.Time, int)                       {}
func (*patient) Notified(clock.Time)                        {} // marks are ignored
func (*patient) Lost(clock.Time, congestion.Loss)           {}
func (*patient) Tick(clock.Time)                            {}
func (*patient) Deadline() clock.Time                       { return clock.Never }

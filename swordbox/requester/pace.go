package requester

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Limits are what an operator allows the requests of a Conn. The zero value limits nothing.
type Limits struct {
	// Rate is how many bits of frames a second the Conn sends at most, with retransmissions: Ethernet
	// header to ICRC, without FCS, preamble and gap. 0 means no bound.
	Rate int64
	// Burst is how many bytes may leave at once after a pause: the size of the token bucket. 0 means
	// 16 KiB.
	Burst int
	// DSCP is the code point of the requests, which decides their priority on a link. It replaces that
	// of the connection's path unless it is 0.
	DSCP uint8
}

// MinRate and MaxRate bound Limits.Rate.
const MinRate, MaxRate = 1_000_000, 1_000_000_000_000

// usualBurst is Limits.Burst if that is 0. It is more than the longest request.
const usualBurst = 16 << 10

// pace is the token bucket of Limits.Rate, as the time at which it is full again (the virtual scheduling
// algorithm of ITU-T I.371): each frame moves this time by the frame's length at the rate. The next frame
// may leave when the bucket is full within the time of a burst.
type pace struct {
	limits Limits
	full   clock.Time // when the bucket is full again
	until  clock.Time // when the next frame may leave, if it may not now; clock.Never if it may now
	seen   clock.Time // when the Conn last looked at the time
}

// SetLimits sets the limits of requests that are sent from now on. What waits for its time may leave with the next Tick,
// which is due at once.
func (c *Conn) SetLimits(l Limits) {
	if l.Burst == 0 {
		l.Burst = usualBurst
	}
	if l != c.pace.limits {
		if c.pace.full = 0; c.pace.paused() {
			c.pace.until = c.pace.seen
		}
	}
	c.pace.limits = l
}

// Limits returns the limits in force.
func (c *Conn) Limits() Limits { return c.pace.limits }

// paused reports whether the next frame must wait for its time.
func (p *pace) paused() bool { return p.until != clock.Never }

// time returns how long n bytes take at the rate.
func (p *pace) time(n int) time.Duration {
	const bits = 8
	return time.Duration(int64(n) * bits * int64(time.Second) / p.limits.Rate)
}

// spend takes the tokens of a frame of n bytes that leaves now. It reports whether the next frame must
// wait.
func (p *pace) spend(now clock.Time, n int) bool {
	if p.limits.Rate == 0 {
		return false
	}
	p.full = max(p.full, now).Add(p.time(n))
	if next := p.full.Add(-p.time(p.limits.Burst)); next > now {
		p.until = next
	}
	return p.paused()
}

// allows returns how many of n requests of at most `longest` bytes can leave before the next pause.
func (p *pace) allows(n, longest int) int {
	const headers = 18 + 40 + 8 + 12 + 28 + 4 // Ethernet with a tag, IPv6, UDP, BTH, AtomicETH, ICRC
	switch {
	case p.limits.Rate == 0:
		return n
	case p.paused():
		return 0
	}
	left := p.time(p.limits.Burst) - max(0, p.full.Sub(p.seen))
	return min(n, 1+int(left/max(1, p.time(longest+headers))))
}

// resume ends the pause if its time has come.
func (p *pace) resume(now clock.Time) {
	if p.seen = now; p.until <= now {
		p.until = clock.Never
	}
}

// mark sets the DSCP of a request, and leaves its ECN field.
func (p *pace) mark(f *wire.Frame) {
	const ecnBits = 2
	if p.limits.DSCP == 0 {
		return
	}
	f.SetClass(p.limits.DSCP<<ecnBits | uint8(f.ECN()))
}

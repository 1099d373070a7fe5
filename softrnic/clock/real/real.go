// Package real is the clock of a rack, from which state machines get their time. It uses the
// monotonic clock, so that a change of the wall clock moves no deadline. In a rack in slow motion it
// goes slower than real time, by the rack's factor.
package real

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Clock returns the time since it was created, in nanoseconds. It is safe for concurrent use.
// Inside a testing/synctest bubble it follows the bubble's time.
type Clock struct {
	start time.Time
	zero  int64         // the machine's monotonic clock at start, in nanoseconds
	slow  time.Duration // how many nanoseconds of real time pass in a nanosecond of the clock
}

// New starts a clock at zero.
func New() *Clock { return NewSlow(1) }

// NewSlow starts a clock at zero that goes slower than real time by a factor, at least 1. It is the
// clock of a rack in slow motion: all times that state machines choose by it are longer in real time
// by this factor.
func NewSlow(factor int) *Clock {
	var t unix.Timespec
	best := time.Hour
	c := &Clock{slow: time.Duration(max(1, factor))}
	for range readings { // the thread may lose the processor between two readings
		before := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: this clock always exists
		if d := time.Since(before); d < best {
			best, c.start, c.zero = d, before, t.Nano()
		}
	}
	return c
}

// readings is how often New reads both clocks; it uses the closest pair.
const readings = 3

// Monotonic returns t in nanoseconds of the machine's monotonic clock, which all processes share.
// The error is at most the time that New took to read both clocks, in the fastest of its readings.
func (c *Clock) Monotonic(t clock.Time) int64 { return c.zero + int64(c.Real(time.Duration(t))) }

// Now returns the time since New.
func (c *Clock) Now() clock.Time { return clock.Time(time.Since(c.start) / c.slow) }

// Real returns the real time in which the clock advances by d, or the longest time that there is if
// that would be more.
func (c *Clock) Real(d time.Duration) time.Duration {
	if d > math.MaxInt64/c.slow {
		return math.MaxInt64
	}
	return d * c.slow
}

// Until returns the real time that is left until t: 0 if t has passed, -1 (no limit) for
// clock.Never.
func (c *Clock) Until(t clock.Time) time.Duration {
	if t == clock.Never {
		return -1
	}
	return max(0, c.Real(t.Sub(c.Now())))
}

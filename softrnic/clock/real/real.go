// Package real is the clock of a rack, from which state machines get their time. It uses the
// monotonic clock, so that a change of the wall clock moves no deadline.
package real

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Clock returns the time since it was created, in nanoseconds. It is safe for concurrent use.
// Inside a testing/synctest bubble it follows the bubble's time.
type Clock struct {
	start time.Time
	zero  int64 // the machine's monotonic clock at start, in nanoseconds
}

// New starts a clock at zero.
func New() *Clock {
	var t unix.Timespec
	best := time.Hour
	c := &Clock{}
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
func (c *Clock) Monotonic(t clock.Time) int64 { return c.zero + int64(t) }

// Now returns the time since New.
func (c *Clock) Now() clock.Time { return clock.Time(time.Since(c.start)) }

// Until returns the time that is left until t: 0 if t has passed, -1 (no limit) for clock.Never.
func (c *Clock) Until(t clock.Time) time.Duration {
	if t == clock.Never {
		return -1
	}
	return max(0, t.Sub(c.Now()))
}

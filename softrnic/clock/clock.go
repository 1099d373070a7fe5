// Package clock has the time type of the whole project and an indexed heap of deadlines.
//
// Nothing here reads a clock. The caller of a state machine passes it the time, and the machine
// says when it must be called next. On a rack the caller gets the time from package clock/real.
package clock

import (
	"math"
	"time"
)

// Time is an instant in nanoseconds since an epoch that the caller chose: process start on the
// rack, 0 in the simulator. Only differences between times, and their order, have a meaning.
type Time int64

// Never is the deadline of a state machine that has no timer running.
const Never Time = math.MaxInt64

// Add returns t+d. Never+d is Never, and an overflow gives Never.
func (t Time) Add(d time.Duration) Time {
	if t == Never {
		return Never
	}
	s := t + Time(d)
	if d > 0 && s < t {
		return Never
	}
	return s
}

func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Min returns the earlier of a and b.
func Min(a, b Time) Time {
	if a < b {
		return a
	}
	return b
}

// String returns t as a duration since the epoch, or "never".
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return time.Duration(t).String()
}

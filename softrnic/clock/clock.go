// Package clock holds the time type of the whole project and an indexed deadline heap.
//
// Nothing here reads a clock. A machine is handed now by its caller and answers when it next wants
// to be called; package clock/real is the only place of the datapath that asks the operating
// system.
package clock

import (
	"math"
	"time"
)

// Time is an instant in nanoseconds since an epoch that the caller chose (process start on the
// rack, zero in the simulator). Only differences and order mean anything.
type Time int64

// Never is the deadline of a machine that waits for nothing.
const Never Time = math.MaxInt64

// Add returns t+d; Never stays Never and overflow saturates at Never.
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

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Min returns the earlier of a and b.
func Min(a, b Time) Time {
	if a < b {
		return a
	}
	return b
}

// String prints t as a duration since the epoch, or "never".
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return time.Duration(t).String()
}

package cost

import (
	"fmt"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Rate is in operations or packets per second; 0 means no limit.
type Rate int64

// String returns the rate like 18.6M or 500k.
func (r Rate) String() string {
	switch {
	case r == 0:
		return "unlimited"
	case r >= 1e6:
		return strconv.FormatFloat(float64(r)/1e6, 'f', -1, 64) + "M"
	case r%1e3 == 0:
		return fmt.Sprintf("%dk", r/1e3)
	}
	return strconv.FormatInt(int64(r), 10)
}

// pico is an instant or a duration in picoseconds: at 63 million operations per second,
// whole nanoseconds would be wrong by one percent.
type pico int64

const picoPerSecond = 1_000_000_000_000

// span returns how long one operation occupies a server of this rate.
func (r Rate) span() pico {
	if r <= 0 {
		return 0
	}
	return pico(picoPerSecond / int64(r))
}

func picoOf(t clock.Time) pico { return pico(t) * 1000 }

// time converts picoseconds to nanoseconds, rounded up.
func (p pico) time() clock.Time { return clock.Time((p + 999) / 1000) }

// server serves one request at a time, in the order of arrival. free is the time from which on it
// is idle.
type server struct{ free pico }

// serve serves a request that arrives at `at` and occupies the server for `span`. It returns the
// time at which the service begins.
func (s *server) serve(at, span pico) (start pico) {
	start = max(at, s.free)
	s.free = start + span
	return start
}

// Package stall notes when a thread that polls did not get a processor for long. Such a stall of a NIC
// or of the switch has the effects of a lost link: connections send again, and end when their retries are
// used up, although nothing was lost.
//
// A stall is seen from inside, as a long time between two polls of a thread that does not sleep, or as a
// timer that comes late. The wait of a thread that sleeps for a frame cannot be seen. A process that was
// stopped (SIGSTOP, `rdmalab hang`) has a stall as well.
package stall

import (
	"sync"
	"time"
)

// Least is the shortest stall: longer than a time slice of a busy machine, and shorter than the shortest
// retry time that programs use (67 ms).
const Least = 50 * time.Millisecond

// Kept is how many stalls a Log remembers.
const Kept = 16

// Stall is a time in which a thread did not run.
type Stall struct {
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"took"` // nanoseconds
}

// End returns when the thread ran again.
func (s Stall) End() time.Time { return s.Began.Add(s.Took) }

// Summary describes the stalls of a process.
type Summary struct {
	Count   uint64        `json:"count"`
	Longest time.Duration `json:"longest"` // nanoseconds
	// Recent are the newest stalls, oldest first, at most Kept.
	Recent []Stall `json:"recent,omitempty"`
}

// Log has the stalls of a process. Its zero value is empty; it is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	count   uint64
	longest time.Duration
	recent  [Kept]Stall // a ring: stall n is at n modulo Kept
}

// Took is called at the time `now` with the time that has passed between two polls of a thread, or by which a
// timer was late. It notes a stall if that was at least Least.
func (l *Log) Took(now time.Time, d time.Duration) {
	if d >= Least {
		l.add(Stall{now.Add(-d), d})
	}
}

func (l *Log) add(s Stall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent[l.count%Kept] = s
	l.count++
	l.longest = max(l.longest, s.Took)
}

// Summary returns the stalls up to now, and nil if there was none.
func (l *Log) Summary() *Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		return nil
	}
	s := &Summary{Count: l.count, Longest: l.longest}
	for n := l.count - min(l.count, Kept); n < l.count; n++ {
		s.Recent = append(s.Recent, l.recent[n%Kept])
	}
	return s
}

// During returns the longest recent stall that overlaps the time from begin to end; ok is false if none
// does. A nil Summary has no stalls.
func (s *Summary) During(begin, end time.Time) (longest Stall, ok bool) {
	if s == nil {
		return longest, false
	}
	for _, x := range s.Recent {
		if x.Began.Before(end) && x.End().After(begin) && x.Took > longest.Took {
			longest, ok = x, true
		}
	}
	return longest, ok
}

// OfProcess has the stalls of this process. The packages that poll note them here.
var OfProcess Log

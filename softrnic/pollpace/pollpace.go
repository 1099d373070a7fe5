// Package pollpace paces a thread that polls for an action of another process, mostly on the same
// machine.
//
// A sleeper that has to be woken costs its peer an interrupt to another CPU: 10 to 50 µs on a
// virtual machine, where a round trip through the rack takes 10. So a thread that expects something
// polls for a while. Between two polls it lets other processes run, because the awaited one may
// need this CPU.
package pollpace

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of polling.
const (
	// hogged is how long a pause may take. A peer that gets the CPU does its work and yields in
	// turn, some tens of microseconds later; a process with other work keeps it for a time slice, a
	// millisecond or more.
	hogged = 500 * time.Microsecond
	// leastSkip and mostSkip bound how many waits do not poll after a longer pause.
	leastSkip, mostSkip = 16, 1024
	// goschedEvery is after how many pauses in a row other goroutines may run, if this process has
	// another processor for them.
	goschedEvery = 32
)

// Crowd remembers whether others need the CPUs that waits of this process poll on. Several threads
// may use it; its zero value is ready.
//
// Polling on a CPU that others need takes it from the awaited processes, and Linux lets a thread
// that yields wait for a whole time slice of theirs. To sleep is cheap then, because a CPU that
// does not idle wakes a sleeper at once. So after a pause that long, some of the next waits do not
// poll.
type Crowd struct {
	left    atomic.Int32 // waits that must not poll yet
	skipped atomic.Int32 // how many those were the last time
}

// begin reports whether a wait that begins may poll.
func (c *Crowd) begin() bool { return c.left.Load() <= 0 || c.left.Add(-1) < 0 }

// Took judges the length of a pause. It reports whether another process kept the CPU for so long
// that polling is of no use now.
func (c *Crowd) Took(d time.Duration) bool {
	if d <= hogged {
		return false
	}
	n := min(max(2*c.skipped.Load(), leastSkip), mostSkip)
	c.skipped.Store(n)
	c.left.Store(n)
	return true
}

// found notes that polling was successful.
func (c *Crowd) found() {
	if n := c.skipped.Load(); n > 0 {
		c.skipped.Store(n / 2)
	}
}

// Spinner paces the polling of one thread, or of several under a lock. Its zero value is ready.
type Spinner struct {
	// Inside: goroutines of this process may do what the thread waits for.
	Inside bool
	// Crowd is what the Spinner shares with those of other waits; nil: it has its own.
	Crowd *Crowd

	own  Crowd
	vain int // pauses of this wait
}

func (s *Spinner) crowd() *Crowd {
	if s.Crowd != nil {
		return s.Crowd
	}
	return &s.own
}

// Begin reports whether the wait that begins may poll.
func (s *Spinner) Begin() bool {
	s.vain = 0
	return s.crowd().begin()
}

// Pause lets others run after an empty poll. It reports whether another process kept the CPU for so
// long that polling is of no use now.
func (s *Spinner) Pause() bool {
	s.vain++
	start := time.Now()
	Pause(s.vain, s.Inside)
	return s.Took(time.Since(start))
}

// Took judges a pause that was made elsewhere: see Crowd.Took.
func (s *Spinner) Took(d time.Duration) bool { return s.crowd().Took(d) }

// Found notes that polling was successful.
func (s *Spinner) Found() { s.crowd().found() }

// Pause lets others run after an empty poll; vain is the number of empty polls in a row, inside is
// as Spinner.Inside.
func Pause(vain int, inside bool) {
	// Gosched wakes another thread of this process for each processor that idles, which takes
	// longer than a round trip. So it is done with one processor only, and for goroutines that have
	// waited for a while.
	if inside || runtime.GOMAXPROCS(0) == 1 || vain%goschedEvery == 0 {
		runtime.Gosched()
	}
	Yield()
}

// Yield lets another process have the CPU. It takes 0.6 µs if none wants it, short enough to skip
// Go's bookkeeping of system calls: with it, a long absence costs the processor of this goroutine,
// which is slow to come back.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

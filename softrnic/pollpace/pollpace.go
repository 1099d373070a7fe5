// Package pollpace paces a thread that polls for an action of another process, mostly on the same
// machine.
//
// To wake a sleeping thread costs its peer an interrupt to another CPU: 10 to 50 µs on a virtual
// machine, where a round trip through the rack takes 10. So a thread that expects something polls
// for a while. Between two polls it yields the CPU, because the process that it waits for may need
// this CPU.
package pollpace

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of polling.
const (
	// hogged is the longest pause after which polling goes on. A peer that gets the CPU does its
	// work and yields in turn after some tens of microseconds; a process with other work keeps the
	// CPU for a time slice, a millisecond or more.
	hogged = 500 * time.Microsecond
	// After a longer pause than hogged, some waits do not poll: at least leastSkip and at most
	// mostSkip of them.
	leastSkip, mostSkip = 16, 1024
	// After each goschedEvery consecutive pauses, other goroutines may also run.
	goschedEvery = 32
)

// Crowd says whether other processes need the CPUs on which waits of this process poll. It is safe
// for concurrent use; its zero value is ready to use.
//
// Polling on a CPU that others need takes it from the processes for which the thread waits. Linux
// then also lets a thread that yields wait for a whole time slice. Sleeping is cheap in this case,
// because a CPU that is not idle wakes a sleeping thread at once. So after such a long pause, some
// of the next waits do not poll.
type Crowd struct {
	left    atomic.Int32 // number of the next waits that must not poll
	skipped atomic.Int32 // how many waits must not poll after the last long pause
}

// begin reports whether a new wait may poll.
func (c *Crowd) begin() bool { return c.left.Load() <= 0 || c.left.Add(-1) < 0 }

// Took gets the length of a pause. It reports whether another process kept the CPU for longer than
// hogged. If it is true, polling is of no use now.
func (c *Crowd) Took(d time.Duration) bool {
	if d <= hogged {
		return false
	}
	n := min(max(2*c.skipped.Load(), leastSkip), mostSkip)
	c.skipped.Store(n)
	c.left.Store(n)
	return true
}

// found is called when polling was successful.
func (c *Crowd) found() {
	if n := c.skipped.Load(); n > 0 {
		c.skipped.Store(n / 2)
	}
}

// Spinner paces the polling of one thread, or of several under a lock. Its zero value is ready to
// use.
type Spinner struct {
	// Inside: the thread may be waiting for goroutines of this process.
	Inside bool
	// Crowd is shared with the Spinners of other waits; nil means that the Spinner has its own.
	Crowd *Crowd

	own  Crowd
	vain int // number of pauses in this wait
}

func (s *Spinner) crowd() *Crowd {
	if s.Crowd != nil {
		return s.Crowd
	}
	return &s.own
}

// Begin begins a wait and reports whether it may poll.
func (s *Spinner) Begin() bool {
	s.vain = 0
	return s.crowd().begin()
}

// Pause yields the CPU after an empty poll. It returns true if another process then kept the CPU
// for longer than hogged, so that polling is of no use now.
func (s *Spinner) Pause() bool {
	s.vain++
	start := time.Now()
	Pause(s.vain, s.Inside)
	return s.Took(time.Since(start))
}

// Took tells the crowd the length of a pause that the caller has made without Pause. The result is
// as for Pause.
func (s *Spinner) Took(d time.Duration) bool { return s.crowd().Took(d) }

// Found is called when polling was successful.
func (s *Spinner) Found() { s.crowd().found() }

// Pause yields the CPU after an empty poll. empty is the number of consecutive empty polls; inside
// has the meaning of Spinner.Inside.
func Pause(empty int, inside bool) {
	// Gosched wakes another thread of this process for each idle processor, which takes longer than
	// a round trip. So it is called only with a single processor, for goroutines of this process,
	// and from time to time.
	if inside || runtime.GOMAXPROCS(0) == 1 || empty%goschedEvery == 0 {
		runtime.Gosched()
	}
	Yield()
}

// Yield yields the CPU to another process. If no process wants it, that takes 0.6 µs. So Yield does
// not tell Go's scheduler about the system call. With the usual bookkeeping, this goroutine would
// lose its processor whenever another process runs for long.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

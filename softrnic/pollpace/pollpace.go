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
	// leastSkip and mostSkip are the least and the largest number of waits without polling after a
	// longer pause.
	leastSkip, mostSkip = 16, 1024
	// goschedEvery: each goschedEvery-th consecutive pause also lets other goroutines run.
	goschedEvery = 32
)

// Crowd says whether other processes need the CPUs on which waits of this process poll. It is safe
// for concurrent use; its zero value is ready to use.
//
// Polling on a CPU that others need takes it from the processes that the thread waits for, and
// Linux lets a thread that yields wait for a whole time slice. Sleeping is cheap then, because a
// CPU that is not idle wakes a sleeping thread at once. So after such a long pause, some of the
// next waits do not poll.
type Crowd struct {
	left    atomic.Int32 // waits that must still not poll
	skipped atomic.Int32 // number of such waits the last time
}

// begin reports whether a new wait may poll.
func (c *Crowd) begin() bool { return c.left.Load() <= 0 || c.left.Add(-1) < 0 }

// Took takes the length of a pause. It reports whether another process kept the CPU for so long
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
	// Crowd is shared with the Spinners of other waits; nil: the Spinner has its own.
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

// Pause yields the CPU after an empty poll. It reports whether another process kept the CPU for so
// long that polling is of no use now.
func (s *Spinner) Pause() bool {
	s.vain++
	start := time.Now()
	Pause(s.vain, s.Inside)
	return s.Took(time.Since(start))
}

// Took tells the crowd how long a pause took that the caller has made by itself, without Pause. Its
// result is that of Pause.
func (s *Spinner) Took(d time.Duration) bool { return s.crowd().Took(d) }

// Found is called when polling was successful.
func (s *Spinner) Found() { s.crowd().found() }

// Pause yields the CPU after an empty poll. vain is the number of consecutive empty polls; inside
// is as Spinner.Inside.
func Pause(vain int, inside bool) {
	// Gosched wakes another thread of this process for each idle processor, which takes longer than
	// a round trip. So it is called only with a single processor, for goroutines of this process,
	// and from time to time.
	if inside || runtime.GOMAXPROCS(0) == 1 || vain%goschedEvery == 0 {
		runtime.Gosched()
	}
	Yield()
}

// Yield yields the CPU to another process. If no process wants it, that takes 0.6 µs: short enough
// to bypass Go's bookkeeping of system calls, with which a long absence costs this goroutine its
// processor.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

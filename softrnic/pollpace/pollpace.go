// Package pollpace decides whether a thread that waits for an action of another process polls or
// sleeps, and yields the CPU between two polls. The other process is mostly on the same machine.
//
// To wake a sleeping thread, its peer must interrupt another CPU. On a virtual machine this takes
// 10 to 50 µs, and a round trip through the rack takes 10 µs. So a thread that waits polls for a
// while before it sleeps. Between two polls it yields the CPU, because the process for which it
// waits may need this CPU.
package pollpace

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/stall"
)

// Limits of polling.
const (
	// hogged is the longest pause after which a wait continues to poll. A peer that gets the CPU
	// works for some tens of microseconds and yields, too. A process with other work keeps the CPU
	// for a time slice of a millisecond or more.
	hogged = 500 * time.Microsecond
	// emptyPause is the longest time that Spinner.Spent counts for one pause. Yield takes less if no
	// other process needs the CPU.
	emptyPause = 2 * time.Microsecond
	// After a pause that was longer than hogged, the next waits do not poll: leastSkip of them at
	// least, mostSkip at most. Each such pause doubles the number; a wait in which polling has found
	// something halves it.
	leastSkip, mostSkip = 16, 1024
	// Every goschedEvery-th pause in a row also lets other goroutines run (runtime.Gosched).
	goschedEvery = 32
)

// Crowd estimates whether other processes need the CPUs on which waits of this process poll. It is
// safe for concurrent use; its zero value is ready to use.
//
// On such a CPU, polling takes time from the processes for which the thread waits. Linux then also
// lets a thread that yields wait for a whole time slice. Sleeping costs little in this case,
// because a CPU that is not idle wakes a sleeping thread at once. So after a pause longer than
// hogged, some of the next waits do not poll.
type Crowd struct {
	left    atomic.Int32 // number of the next waits that must not poll
	skipped atomic.Int32 // value of left after the last long pause, halved by each call of found since then
}

// begin reports whether a new wait may poll.
func (c *Crowd) begin() bool { return c.left.Load() <= 0 || c.left.Add(-1) < 0 }

// Took is called with the time from one poll of a waiting thread to its next one. It reports
// whether this was longer than hogged, because another process kept the CPU. Then the caller should
// sleep instead of polling.
func (c *Crowd) Took(d time.Duration) bool {
	if d <= hogged {
		return false
	}
	if d >= stall.Least {
		stall.OfProcess.Took(time.Now(), d)
	}
	n := min(max(2*c.skipped.Load(), leastSkip), mostSkip)
	c.skipped.Store(n)
	c.left.Store(n)
	return true
}

// found is called when polling has found what the thread waited for. It halves the number of waits
// which the next pause longer than hogged keeps from polling.
func (c *Crowd) found() {
	if n := c.skipped.Load(); n > 0 {
		c.skipped.Store(n / 2)
	}
}

// Spinner paces the polling of one thread, or of several under a lock. Its zero value is ready to
// use.
type Spinner struct {
	// Inside is true if the action for which the thread waits may come from a goroutine of this
	// process. Each pause then also lets other goroutines run.
	Inside bool
	// Crowd is shared with the Spinners of other waits; nil means that the Spinner has its own.
	Crowd *Crowd

	own   Crowd
	vain  int           // number of calls of Pause since Begin
	spent time.Duration // what Spent returns
}

func (s *Spinner) crowd() *Crowd {
	if s.Crowd != nil {
		return s.Crowd
	}
	return &s.own
}

// Begin is called at the beginning of a wait, and reports whether the wait may poll.
func (s *Spinner) Begin() bool {
	s.vain, s.spent = 0, 0
	return s.crowd().begin()
}

// Pause yields the CPU after an empty poll. It returns true if another process then kept the CPU
// for longer than hogged. Then the caller should sleep instead of polling.
func (s *Spinner) Pause() bool {
	s.vain++
	start := time.Now()
	Pause(s.vain, s.Inside)
	return s.paused(time.Since(start))
}

// paused adds a pause to the time that Spent returns, and returns the result of Took.
func (s *Spinner) paused(took time.Duration) bool {
	s.spent += min(took, emptyPause)
	return s.Took(took)
}

// Spent returns how long this wait has polled, without the time in which other processes had the
// CPU: the sum of its calls of Pause, each counted as at most emptyPause, because a longer pause
// means that another process ran.
func (s *Spinner) Spent() time.Duration { return s.spent }

// Took is called with the length of a pause that the caller has made without Pause. Its result
// means the same as that of Pause.
func (s *Spinner) Took(d time.Duration) bool { return s.crowd().Took(d) }

// Found is called when polling has found what the thread waited for.
func (s *Spinner) Found() { s.crowd().found() }

// Pause yields the CPU after an empty poll. empty is the number of consecutive empty polls. inside
// is true if the caller may wait for a goroutine of this process; then Pause lets goroutines run.
func Pause(empty int, inside bool) {
	// Gosched wakes another thread of this process for each idle processor, which takes longer than
	// a round trip. So it is called only if the caller may wait for another goroutine (inside), if
	// the process uses a single processor, or from time to time.
	if inside || runtime.GOMAXPROCS(0) == 1 || empty%goschedEvery == 0 {
		runtime.Gosched()
	}
	Yield()
}

// Yield yields the CPU to another process. If no process needs it, that takes 0.6 µs. Yield does
// not use the bookkeeping of Go's scheduler for system calls: with it, this goroutine would lose
// its processor whenever another process runs for long.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

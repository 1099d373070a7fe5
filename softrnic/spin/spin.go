// Package spin is how a thread polls for something that another process, mostly on the same machine, is about to do.
//
// A sleeper that has to be woken costs its peer an interrupt to another CPU: 10 to 50 µs on a virtual machine, where a
// round trip through the rack takes 10. So whoever expects something polls for a while. Between two looks it lets other
// processes run, because the one that it waits for may be waiting for this very CPU.
package spin

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of polling.
const (
	// hogged is how long a pause may take. A peer that has got the CPU does its work and yields in turn, some tens of
	// microseconds later; who has other work keeps it for a slice of the kernel's, a millisecond and more.
	hogged = 500 * time.Microsecond
	// leastSkip and mostSkip bound how many waits do not poll after that happened.
	leastSkip, mostSkip = 16, 1024
	// patience is after how many pauses in a row other goroutines may run, if this process has another processor for
	// them.
	patience = 32
)

// Spinner paces the polling of one thread, or of several under a lock. Its zero value is ready.
//
// Polling on a CPU that others want takes it from the very processes that are waited for, and Linux lets who yields wait
// for a whole slice of theirs; to sleep is cheap then, because a CPU that does not idle wakes a sleeper at once. So when
// a pause takes that long, some of the next waits shall not poll.
type Spinner struct {
	// Inside says that what is waited for may be done by goroutines of this process.
	Inside bool

	vain    int // pauses of this wait
	left    int // waits that shall not poll
	skipped int // how many those were the last time
}

// Begin says whether a wait that begins here may poll.
func (s *Spinner) Begin() bool {
	if s.left > 0 {
		s.left--
		return false
	}
	s.vain = 0
	return true
}

// Pause lets others run after a look in vain. It reports whether somebody kept the CPU for so long that polling has no
// use now.
func (s *Spinner) Pause() bool {
	s.vain++
	start := time.Now()
	Pause(s.vain, s.Inside)
	return s.took(time.Since(start))
}

// took judges the length of a pause.
func (s *Spinner) took(d time.Duration) bool {
	if d <= hogged {
		return false
	}
	s.skipped = min(max(2*s.skipped, leastSkip), mostSkip)
	s.left = s.skipped
	return true
}

// Found notes that polling found what it waited for.
func (s *Spinner) Found() { s.skipped /= 2 }

// Pause lets others run after so many looks in vain, in a row; inside means what Spinner.Inside does.
func Pause(vain int, inside bool) {
	// Gosched wakes another thread of this process for each processor that idles, which takes longer than a round trip.
	// So it is for those who have one processor only, and for goroutines that have waited for a while.
	if inside || runtime.GOMAXPROCS(0) == 1 || vain%patience == 0 {
		runtime.Gosched()
	}
	Yield()
}

// Yield lets another process have the CPU. It takes 0.6 µs if none wants it, short enough to skip Go's bookkeeping of
// system calls: with it, a long absence costs the processor of this goroutine, which is slow to come back.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

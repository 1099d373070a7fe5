package serve

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/mem"
)

const (
	// memoryCheck is the pause between two checks whether the kernel is waiting for a page of guarded
	// memory. If two checks in a row find it waiting, the memory counts as lost. Two pauses are longer
	// than a busy disk takes. They are shorter than half a second, for which peers of other programs
	// usually wait (docs/explain/patience.md).
	memoryCheck = 200 * time.Millisecond
	// memoryLooks is the number of checks after which the memory counts as lost even if no two checks
	// in a row have found the kernel waiting.
	memoryLooks = 25
	// guardPiece is how many bytes are copied at a time: the largest payload of a packet.
	guardPiece = 4096
	// maxStuck bounds, for each user, the guards of detached programs that still wait for a page. Each
	// such guard takes a thread and a descriptor of the daemon. At this bound the user's programs can
	// register no more memory that needs a guard.
	maxStuck = 4
)

// guard gives access to memory of a program for whose pages the kernel may wait, for example a file
// of a file system that no longer answers. No system call can copy such memory without the risk of
// blocking. So a goroutine makes the copies, and if a copy blocks, the NIC does not wait for it and
// the memory counts as lost. The goroutine may finish this copy later, from or into the guard's own
// buffer, which is not used any more.
//
// The methods of mem.Far are called with exclusive use of the engine.
type guard struct {
	m    *programMemory
	fd   int // /proc/PID/mem of the program; the goroutine closes it
	ask  chan struct{}
	done chan struct{} // the goroutine sends here at the end of each copy; capacity 1, because the NIC may have stopped waiting
	late *time.Timer   // ends the pause before the next check; see memoryCheck
	// thread is the number of the thread that makes the copy; 0 means that the goroutine has not begun
	// the copy.
	thread atomic.Int64
	// The requested copy: n bytes between piece and address `at` of the program. From the request
	// until the goroutine sends to done, these fields belong to the goroutine.
	piece [guardPiece]byte
	n     int
	at    uint64
	write bool
	// demand is true if the goroutine first looks what the program has mapped there; see onDemand.
	demand bool
	ok     bool
}

var _ mem.Far = (*guard)(nil)

// newGuard makes a guard; close ends its goroutine.
func (m *programMemory) newGuard() (*guard, error) {
	if m.stuck.of(m.user) >= maxStuck {
		return nil, limitError("reg MR", "the NIC still waits for pages of %d former programs of user %d", maxStuck, m.user)
	}
	fd, err := unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, limitError("reg MR", "memory file: %v", err)
	}
	g := &guard{
		m: m, fd: fd, ask: make(chan struct{}), done: make(chan struct{}, 1),
		late: time.NewTimer(memoryCheck),
	}
	g.late.Stop()
	go g.run()
	return g, nil
}

// close ends the goroutine. A goroutine that waits for a page ends when the kernel provides the
// page or fails the access, at the latest when the file system is unmounted.
func (g *guard) close() {
	if g.m.lost.Load() {
		g.m.stuck.add(g.m.user, 1)
	}
	close(g.ask)
}

func (g *guard) run() {
	for range g.ask {
		g.thread.Store(int64(unix.Gettid()))
		switch p := g.piece[:g.n]; {
		case g.demand && !g.m.may(g.at, g.n, g.write):
			g.ok = false
		case g.write:
			g.ok = writeAt(g.fd, p, g.at)
		default:
			g.ok = readAt(g.fd, p, g.at)
		}
		g.done <- struct{}{}
	}
	_ = unix.Close(g.fd) // a file of procfs needs no writing back
	if g.m.lost.Load() {
		g.m.stuck.add(g.m.user, -1)
	}
}

// copy makes the goroutine copy p to the program's memory at address `at` if write is set,
// otherwise from there to p. If demand is set, the goroutine first looks whether the program itself
// can make that access. copy reports success.
func (g *guard) copy(p []byte, at uint64, write, demand bool) bool {
	for len(p) > 0 {
		n := min(len(p), guardPiece)
		if g.m.lost.Load() {
			return false
		}
		g.n, g.at, g.write, g.demand = n, at, write, demand
		if write {
			copy(g.piece[:n], p)
		}
		g.thread.Store(0)
		g.ask <- struct{}{}
		if !g.wait() {
			g.m.lost.Store(true)
			return false
		}
		if !g.ok {
			return false
		}
		if !write {
			copy(p, g.piece[:n])
		}
		p, at = p[n:], at+uint64(n)
	}
	return true
}

// wait waits for the goroutine to end the copy. It returns false if the copy is blocked or takes
// very long.
func (g *guard) wait() bool {
	for waits, looks := 0, 0; waits < 2 && looks < memoryLooks; looks++ {
		g.late.Reset(memoryCheck)
		select {
		case <-g.done:
			g.late.Stop()
			return true
		case <-g.late.C:
		}
		if waits++; !g.asleep() {
			waits = 0
		}
	}
	return false
}

// asleep reports whether the thread that makes the copy neither runs nor waits for a processor. On
// a busy machine a thread may wait long for a processor; then its copy is not blocked. A thread
// that has just ended the copy may sleep, too, but then done is ready at the next check. If the
// daemon cannot read the thread's state because it has no descriptors left, the thread counts as
// asleep, so that the NIC does not wait without end.
func (g *guard) asleep() bool {
	thread := g.thread.Load()
	if thread == 0 {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	i := bytes.LastIndex(stat, []byte(") ")) // the end of the thread's name in the file
	return err != nil || i < 0 || !bytes.HasPrefix(stat[i:], []byte(") R"))
}

func (g *guard) Read(p []byte, at uint64) bool { return g.copy(p, at, false, false) }

func (g *guard) Write(p []byte, at uint64) bool { return g.copy(p, at, true, false) }

// stuck counts, by user, questions about files that are not answered (see areProc), and the guards of
// detached programs whose goroutines still wait for a page of the program's memory.
type stuck struct {
	mu     sync.Mutex
	byUser map[uint32]int
}

func newStuck() *stuck { return &stuck{byUser: make(map[uint32]int)} }

func (s *stuck) of(user uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUser[user]
}

func (s *stuck) add(user uint32, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byUser[user] += n; s.byUser[user] == 0 {
		delete(s.byUser, user)
	}
}

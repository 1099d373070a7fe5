package serve

import (
	"bytes"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/mem"
)

// guarded is the memory of this process, as a program's, with a guard.
func guarded(t *testing.T) (*programMemory, *guard) {
	t.Helper()
	m := ownMemory(t)
	far, err := m.accessor(true)
	must(t, err)
	return m, far.(*guard)
}

// A guard copies any number of bytes, in pieces.
func TestGuardCopiesInPieces(t *testing.T) {
	_, g := guarded(t)
	for _, n := range []int{0, 1, guardPiece - 1, guardPiece, guardPiece + 1, 2*guardPiece + 5} {
		from, to := make([]byte, n), make([]byte, n+1)
		for i := range from {
			from[i] = byte(i*7 + i>>8)
		}
		to[n] = 0xee
		if !g.Write(from, addr(to)) || !bytes.Equal(to[:n], from) || to[n] != 0xee {
			t.Errorf("%d bytes were not written as they are", n)
		}
		clear(from)
		if n > 0 && (!g.Read(from, addr(to)) || !bytes.Equal(to[:n], from)) {
			t.Errorf("%d bytes were not read as they are", n)
		}
	}
}

// An access that reaches memory which is not there fails as a whole, through a guard as without
// one. The memory is not lost by that.
func TestAccessAcrossTheEndOfMemory(t *testing.T) {
	const page = 4096
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	defer func() { must(t, unix.MunmapPtr(unsafe.Pointer(&b[0]), page)) }()
	m, g := guarded(t)
	hole, err := unix.Mmap(-1, 0, page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	gone := addr(hole)
	must(t, unix.Munmap(hole))
	must(t, unix.MunmapPtr(unsafe.Pointer(&b[page]), page))
	p := make([]byte, 16)
	for name, far := range map[string]mem.Far{"plain": m, "guarded": g} {
		if far.Read(p, gone) || far.Write(p, gone) {
			t.Errorf("%s: memory that is unmapped is accessed", name)
		}
		if far.Read(p, addr(b)+page-8) || far.Write(p, addr(b)+page-8) {
			t.Errorf("%s: an access of which only the first half is there succeeds", name)
		}
		if !far.Read(p, addr(b)+page-16) || !far.Write(p, addr(b)+page-16) {
			t.Errorf("%s: the last bytes cannot be accessed", name)
		}
	}
	if m.lost.Load() {
		t.Error("the memory is lost")
	}
}

// A short copy is a failure: a file that ends gives fewer bytes than were asked for.
func TestShortCopies(t *testing.T) {
	fd, err := unix.MemfdCreate("short", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Ftruncate(fd, 8))
	if readAt(fd, make([]byte, 9), 0) || !readAt(fd, make([]byte, 8), 0) || readAt(-1, make([]byte, 8), 0) {
		t.Error("a read is as long as the file has bytes")
	}
	if writeAt(-1, make([]byte, 8), 0) || !writeAt(fd, make([]byte, 8), 4) {
		t.Error("a write fails without a file, and only then")
	}
}

// The NIC looks at the thread that makes a copy: one that runs wants the processor, one that has
// not begun is not asleep, and one that cannot be looked at counts as asleep.
func TestThreadThatMakesACopy(t *testing.T) {
	g := new(guard)
	if g.asleep() {
		t.Error("a copy that has not begun is asleep")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.thread.Store(int64(unix.Gettid())) // it runs: it looks
	if g.asleep() {
		t.Error("a thread that runs is asleep")
	}
	g.thread.Store(1 << 30)
	if !g.asleep() {
		t.Error("a thread that cannot be looked at is awake")
	}
}

// Memory that is lost is not accessed any more. Its guard counts for its user as long as
// its goroutine waits, and further programs of the user get none beyond the bound.
func TestLostMemory(t *testing.T) {
	m, g := guarded(t)
	b := make([]byte, 8)
	m.lost.Store(true)
	d := (*onDemand)(g)
	if m.Read(b, addr(b)) || m.Write(b, addr(b)) || g.Read(b, addr(b)) || g.Write(b, addr(b)) || d.Read(b, addr(b)) || d.Write(b, addr(b)) {
		t.Error("lost memory is accessed")
	}
	m.lost.Store(false)
	another := func() bool {
		x, err := m.newGuard()
		if err == nil {
			x.close()
		}
		return err == nil
	}
	for n := range maxStuck {
		if !another() {
			t.Fatalf("%d wait, and there is no other", n)
		}
		m.stuck.add(m.user, 1)
	}
	if another() {
		t.Error("one more than may wait")
	}
	if m.stuck.add(m.user, -1); !another() {
		t.Error("one has ended, and there is no other")
	}
	if n := m.stuck.of(m.user + 1); n != 0 {
		t.Errorf("%d of another user wait", n)
	}
	m.stuck.add(m.user, 1-maxStuck)
	if n := len(m.stuck.byUser); n != 0 {
		t.Errorf("%d users are remembered", n)
	}
}

// A guard ends with its program: its goroutine and its descriptor go, and it does not count as one
// that waits.
func TestGuardEndsWithItsProgram(t *testing.T) {
	m := ownMemory(t)
	for _, lost := range []bool{false, true} {
		g, err := m.newGuard()
		must(t, err)
		open := func() bool {
			_, err := unix.FcntlInt(uintptr(g.fd), unix.F_GETFD, 0)
			return err == nil
		}
		if !open() {
			t.Fatal("the guard has no descriptor")
		}
		m.lost.Store(lost)
		g.close()
		for end := time.Now().Add(20 * time.Second); open() || m.stuck.of(m.user) != 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("lost: %v: the descriptor is open: %v; %d guards wait", lost, open(), m.stuck.of(m.user))
			}
		}
	}
}

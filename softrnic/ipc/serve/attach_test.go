package serve

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// descriptors returns the set of open descriptors of this process.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	open := make(map[int]bool)
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		must(t, err)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil { // not that of the list
			open[fd] = true
		}
	}
	return open
}

// withDescriptors calls f while the process can open only n further descriptors.
func withDescriptors(t *testing.T, n int, f func()) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	open, most := descriptors(t), 0
	for ; n > 0 || open[most]; most++ {
		if !open[most] {
			n--
		}
	}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(most), Max: old.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	f()
}

// A program for which the daemon has too few descriptors is not attached, whichever of them is
// missing. All others are closed, each once: a number that is closed again may be another program's.
func TestAttachWithFewDescriptors(t *testing.T) {
	h := newHouse(t)
	const needed = 4 // the area, the program's descriptor of it, and a pair of sockets
	for n := range needed + 1 {
		u, _ := unread(t)
		cred, err := ring.Peer(u.conn)
		must(t, err)
		c := h.s.newClient(1, u.conn, cred)
		before := len(descriptors(t))
		mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
		must(t, err)
		maps, err := unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		withDescriptors(t, n, func() { err = c.attachProgram("program", []int{mem, maps}) })
		if (err == nil) != (n == needed) {
			t.Errorf("with %d descriptors: %v", n, err)
		}
		if err := c.detach(); err != nil {
			t.Errorf("the end of a program with %d descriptors: %v", n, err)
		}
		if after := len(descriptors(t)); after != before {
			t.Errorf("with %d descriptors: %d are left open", n, after-before)
		}
	}
}

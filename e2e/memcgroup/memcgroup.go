// Package memcgroup makes cgroups that count memory, of version 1 or 2. Tests use them to check to
// which process's cgroup the kernel charges pages.
package memcgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// places are where the memory controller may be mounted, and the name of its counter there: cgroup2
// alone, version 1, and cgroup2 beside version 1.
var places = []struct{ root, counter string }{
	{"/sys/fs/cgroup", "memory.current"}, {"/sys/fs/cgroup/memory", "memory.usage_in_bytes"}, {"/sys/fs/cgroup/unified", "memory.current"},
}

// emptied bounds the wait until a cgroup has no process any more.
const emptied = 20 * time.Second

// Group is a cgroup of a test.
type Group struct{ dir, counter string }

// New makes a cgroup, and removes it at the end of the test; its processes must have ended by then.
// It skips the test if no cgroup that counts memory can be made on this machine.
func New(t testing.TB) Group {
	t.Helper()
	for _, p := range places {
		g := Group{filepath.Join(p.root, fmt.Sprintf("rdmalab-test-%d", os.Getpid())), p.counter}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(g.dir, g.counter)); err == nil {
			t.Cleanup(func() { g.remove(t) })
			return g
		}
		if err := unix.Rmdir(g.dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip("no cgroup that counts memory can be made here: it needs root, and the memory controller")
	return Group{}
}

// remove removes the cgroup. It retries, because newer kernels take a process out of its cgroup
// only after they have told its parent that it has ended.
func (g Group) remove(t testing.TB) {
	for end := time.Now().Add(emptied); ; time.Sleep(time.Millisecond) {
		err := unix.Rmdir(g.dir)
		switch {
		case err == nil:
			return
		case !errors.Is(err, unix.EBUSY) || time.Now().After(end):
			t.Errorf("remove %s: %v", g.dir, err)
			return
		}
	}
}

// Add moves a process into the cgroup. Pages that the process has touched before stay charged to
// its former cgroup.
func (g Group) Add(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
}

// Charged returns how many bytes are charged to the cgroup.
func (g Group) Charged(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.counter))
	n, malformed := strconv.Atoi(strings.TrimSpace(string(text)))
	if err = cmp.Or(err, malformed); err != nil {
		t.Fatal(err)
	}
	return n
}

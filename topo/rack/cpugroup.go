package rack

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// cpuGroup is the scheduling group of a rack. A thread that polls yields the processor to the other threads of
// its group alone. Linux gives each session a group of its own (autogroup) unless a cgroup with the controller
// cpu has the processes. In groups of their own, daemons and programs that share a processor keep it from each
// other for a time slice each. The cgroup of racks below cgroup2 is such a group if the controller is on, as it
// is with systemd. Where the controller is in a hierarchy of version 1, and the command is in no group of it
// that its processes have anyway, the rack has a cgroup there, too.
type cpuGroup struct {
	dir string // "": the rack has none of its own
	mu  sync.Mutex
}

// cpuRoots are the usual mount points of the controller cpu of cgroup version 1.
var cpuRoots = []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"}

func cpuGroupOf(name string) *cpuGroup {
	own, _ := os.ReadFile("/proc/self/cgroup") // unread, there is no group
	for _, root := range cpuRoots {
		var st unix.Statfs_t
		if err := unix.Statfs(root, &st); err == nil && st.Type == unix.CGROUP_SUPER_MAGIC && inRootGroup(string(own)) {
			return &cpuGroup{dir: filepath.Join(root, cgroupParent, name)}
		}
	}
	return &cpuGroup{}
}

// inRootGroup reports whether a process with this /proc/PID/cgroup is in the root group of the controller cpu of
// version 1, or in the group of a rack, which a command on a host is in.
func inRootGroup(cgroups string) bool {
	for line := range strings.Lines(cgroups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && strings.HasPrefix(f[1], "cpu") && !strings.HasPrefix(f[1], "cpuset") {
			return f[2] == "/" || strings.HasPrefix(f[2], "/"+cgroupParent+"/")
		}
	}
	return false
}

// Shares of a group: sessionShares is what the kernel gives a session; mostSessions are enough for a rack whose
// threads take turns.
const (
	sessionShares = 1024
	mostSessions  = 16
)

// prepare makes the group, and gives it what as many sessions as the rack has nodes would have, at most
// mostSessions. Where the machine refuses that, the rack works without the group. Several nodes may be prepared at
// the same time.
func (g *cpuGroup) prepare(nodes func() int) {
	if g.dir == "" || makeCgroup(g.dir) != nil {
		return
	}
	g.mu.Lock() // so that the last one has counted all
	defer g.mu.Unlock()
	_ = g.write("cpu.shares", min(max(nodes(), 1), mostSessions)*sessionShares) // without it, the group counts as one session
}

// adopt adds a process. A process with real-time priority stays where it is: a group has no real-time runtime.
func (g *cpuGroup) adopt(pid int) {
	if g.dir != "" {
		_ = g.write("cgroup.procs", pid) // refused, it is scheduled as without the group
	}
}

func (g *cpuGroup) write(file string, value int) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.Itoa(value)), 0o644)
}

// remove removes the group, whose processes have ended, with groups that programs have made below it, and the one
// above it if no other rack is left.
func (g *cpuGroup) remove() error {
	if g.dir == "" || !exists(filepath.Dir(g.dir)) {
		return nil
	}
	err := waitFor(killWait, "removal of cgroup "+g.dir, func() (bool, error) {
		err := removeCgroups(g.dir)
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		return true, err
	})
	return errors.Join(err, removeParent(g.dir))
}

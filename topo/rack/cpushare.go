package rack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeShares is what the kernel gives to one autogroup, and so to a node that is alone in it.
const nodeShares = 1024

// cpuShare keeps all processes of a rack in one group of the CPU scheduler.
//
// The nodes take turns on the CPUs by sched_yield(2), which works only within a group. Linux makes a group of each
// session (sched_autogroup), and each node is a session: one that yields to another would go on running for
// milliseconds. A process below a CPU cgroup has no autogroup. So the rack gets one, where the controller is still of the
// first version; with the second one, the cgroup that keeps the processes is such a group already.
//
// It is an improvement, not a need: what cannot be made is left as it was.
type cpuShare struct {
	dir string // "" where the controller has no hierarchy of its own
	use bool   // whether processes shall enter
}

// newCPUShare finds a rack's place in the hierarchy.
func newCPUShare(rack string) cpuShare {
	for _, root := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"} {
		var st unix.Statfs_t
		if err := unix.Statfs(root, &st); err == nil && st.Type == unix.CGROUP_SUPER_MAGIC {
			return cpuShare{dir: filepath.Join(root, cgroupParent+"-"+rack), use: autogrouped()}
		}
	}
	return cpuShare{}
}

// autogrouped says whether this process is in an autogroup. Whoever is in a cgroup instead stays in it, with its limits.
func autogrouped() bool {
	on, err := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	if err != nil || strings.TrimSpace(string(on)) != "1" {
		return false
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && atCPURoot(string(own))
}

// atCPURoot says whether a process is in the uppermost cgroup of a CPU controller of the first version, by what its
// /proc/PID/cgroup says: lines of number:controllers:path.
func atCPURoot(list string) bool {
	for line := range strings.Lines(list) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			if c == "cpu" {
				return f[2] == "/"
			}
		}
	}
	return false
}

// prepare makes the group. It may use as much of the CPUs as its nodes could without it.
func (c cpuShare) prepare(nodes int) {
	if c.use {
		_ = os.MkdirAll(c.dir, 0o755)
		_ = os.WriteFile(filepath.Join(c.dir, "cpu.shares"), []byte(strconv.Itoa(nodeShares*nodes)), 0o644)
	}
}

// adopt puts a process into the group.
func (c cpuShare) adopt(pid int) {
	if c.use {
		_ = os.WriteFile(filepath.Join(c.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
	}
}

// clear removes the group, whose processes have been killed.
func (c cpuShare) clear() error {
	if c.dir == "" {
		return nil
	}
	return waitFor(killWait, "removal of cgroup "+c.dir, func() (bool, error) {
		err := unix.Rmdir(c.dir)
		if errors.Is(err, unix.EBUSY) {
			return false, nil // a process is ending
		}
		if err == nil || gone(err) {
			return true, nil
		}
		return false, fmt.Errorf("remove cgroup %s: %w", c.dir, err)
	})
}

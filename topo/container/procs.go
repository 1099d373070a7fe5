package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// incarnation is one run of a host's container.
type incarnation struct {
	pid   int    // process ID of the container's first process on this machine
	start string // start time of this process, in ticks since boot
	procs string // path of the file that lists the container's processes
}

func netnsOf(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid), "ns", "net") }

// startField is the index of starttime of proc(5) in the fields after the name of the command.
const startField = 19

// Stat returns the fields of /proc/PID/stat after the name of the command, the last of which is the
// start time of the process. It returns nil if the process has ended.
func Stat(pid int) []string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	// The name of the command stands in parentheses and may contain any characters.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) <= startField {
		return nil
	}
	return f[:startField+1]
}

// startOf returns the start time of a process; "" if it has ended.
func startOf(pid int) string {
	if f := Stat(pid); f != nil {
		return f[startField]
	}
	return ""
}

// ReadPIDs lists the processes in a file cgroup.procs. It returns none if the cgroup was removed
// before or while the file was read.
func ReadPIDs(file string) ([]int, error) {
	b, err := os.ReadFile(file)
	var pids []int
	for line := range strings.Lines(string(b)) {
		// The kernel shows 0 for a process outside of this pid namespace. To kill(2), 0 would mean
		// the caller's process group.
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids, except(except(err, fs.ErrNotExist), unix.ENODEV)
}

// cgroupRoots are the mount points of the hierarchies in which processes can be stopped: the
// freezer of version 1, and the unified hierarchy.
var cgroupRoots = []struct{ controller, root string }{
	{"freezer", "/sys/fs/cgroup/freezer"},
	{"", "/sys/fs/cgroup"},
}

// procsFile returns the file that lists the processes of a container whose first process is pid. A
// write of a process ID to this file moves the process into the container's cgroup.
func procsFile(pid int) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", err
	}
	for _, h := range cgroupRoots {
		for line := range strings.Lines(string(b)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers and path
			if len(f) != 3 || f[2] == "/" || f[1] != h.controller {
				continue
			}
			file := filepath.Join(h.root, f[2], "cgroup.procs")
			if _, err := os.Stat(file); err == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup that this machine shows", pid)
}

// incarnation returns the present incarnation of a host's container; nil if the container does not
// run.
func (h *Hosts) incarnation(ctx context.Context, host string) (*incarnation, error) {
	h.mu.Lock()
	l := h.known[host]
	h.mu.Unlock()
	if l != nil && startOf(l.pid) == l.start {
		return l, nil
	}
	c, err := h.Container(ctx, host, PartHost)
	if errors.Is(err, ErrNotFound) || err == nil && !c.Runs() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l = &incarnation{pid: c.PID, start: startOf(c.PID)}
	if l.procs, err = procsFile(c.PID); err != nil {
		if l.start == "" || startOf(c.PID) != l.start {
			return nil, nil // the container has ended meanwhile
		}
		return nil, err
	}
	h.mu.Lock()
	h.known[host] = l
	h.mu.Unlock()
	return l, nil
}

// PIDs lists the processes of a host, as process IDs of this program's pid namespace.
func (h *Hosts) PIDs(ctx context.Context, host string) ([]int, error) {
	l, err := h.incarnation(ctx, host)
	if l == nil || err != nil {
		return nil, err
	}
	return ReadPIDs(l.procs)
}

// Adopt puts a process of this machine into the cgroup of a host's container, so that a hang of the
// host stops this process, too.
func (h *Hosts) Adopt(ctx context.Context, host string, pid int) error {
	l, err := h.incarnation(ctx, host)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("%s has no running container", host)
	}
	if err := os.WriteFile(l.procs, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("put process into the container's cgroup: %w", err)
	}
	return nil
}

package rack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// signalKeeper is the keeper on a machine without cgroup2. The processes of a node are those that
// are in the node's network namespace and not in the pid namespace of this program. A process of
// the machine that has only entered the network namespace does not belong to the rack. The process
// of a timer is named in a file, by its process ID and start time.
type signalKeeper struct{ paths rackfile.Paths }

var _ keeper = (*signalKeeper)(nil)

func (k *signalKeeper) prepare(string) error { return nil }

// timerFile returns the path of the file that names a timer's process, or "" if node is no timer.
func (k *signalKeeper) timerFile(node string) string {
	if name, ok := strings.CutPrefix(node, timerNode("")); ok {
		return k.paths.Timer(name)
	}
	return ""
}

func (k *signalKeeper) adopt(node string, pid int) error {
	p, ok := readProc(pid)
	file := k.timerFile(node)
	if file == "" || !ok {
		return nil
	}
	return os.WriteFile(file, fmt.Appendf(nil, "%d %d", pid, p.start), 0o644)
}

func (k *signalKeeper) pids(node string) ([]int, error) {
	if file := k.timerFile(node); file != "" {
		return timerPids(file), nil
	}
	dev, inode, err := nl.ID(k.paths.Netns(node))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, own, err := nl.ID("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 {
			continue
		}
		ns := filepath.Join("/proc", e.Name(), "ns")
		if d, i, err := nl.ID(filepath.Join(ns, "net")); err != nil || d != dev || i != inode {
			continue
		}
		if _, i, err := nl.ID(filepath.Join(ns, "pid")); err == nil && i != own {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// timerPids returns the process that a timer's file names, if that process still runs.
func timerPids(file string) []int {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var pid int
	var start uint64
	if _, err := fmt.Sscanf(string(b), "%d %d", &pid, &start); err != nil || pid <= 1 {
		return nil
	}
	if p, ok := readProc(pid); !ok || p.start != start {
		return nil
	}
	return []int{pid}
}

// signal sends a signal to every process of a node, to the youngest first and so to process 1 of
// its pid namespace last. It returns the number of processes.
func (k *signalKeeper) signal(node string, sig syscall.Signal) (int, error) {
	pids, err := k.pids(node)
	if err != nil {
		return 0, err
	}
	ps := processes(pids)
	var errs error
	for i := len(ps) - 1; i >= 0; i-- {
		if err := unix.Kill(ps[i].pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = errors.Join(errs, fmt.Errorf("signal %v to process %d of %s: %w", sig, ps[i].pid, node, err))
		}
	}
	return len(ps), errs
}

func (k *signalKeeper) kill(node string) error {
	return waitFor(killWait, "end of the processes of "+node, func() (bool, error) {
		n, err := k.signal(node, unix.SIGKILL)
		return n == 0, err
	})
}

func (k *signalKeeper) hang(node string, on bool) error {
	if !on {
		return waitFor(killWait, "resuming of "+node, func() (bool, error) {
			if _, err := k.signal(node, unix.SIGCONT); err != nil {
				return false, err
			}
			hung, err := k.hung(node)
			return !hung, err
		})
	}
	var s stopper
	err := waitFor(killWait, "hanging of "+node, func() (bool, error) {
		pids, err := k.pids(node)
		if err != nil {
			return false, err
		}
		return s.round(processes(pids))
	})
	if err != nil {
		_, cerr := k.signal(node, unix.SIGCONT)
		return errors.Join(s.explain(err), cerr)
	}
	return nil
}

func (k *signalKeeper) hung(node string) (bool, error) {
	pids, err := k.pids(node)
	if err != nil {
		return false, err
	}
	ps := processes(pids)
	for _, p := range ps {
		if p.state != stoppedProc && p.state != tracedProc {
			return false, nil
		}
	}
	return len(ps) > 0, nil
}

func (k *signalKeeper) clear() error {
	var errs error
	for _, sub := range []struct{ dir, prefix string }{{filepath.Dir(k.paths.Timer("x")), timerNode("")}, {filepath.Dir(k.paths.Netns("x")), ""}} {
		entries, err := os.ReadDir(sub.dir)
		if err != nil {
			continue // the folder was never made, or is gone
		}
		for _, e := range entries {
			errs = errors.Join(errs, k.kill(sub.prefix+e.Name()))
		}
	}
	return errs
}

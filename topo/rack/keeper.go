package rack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/topo/container"
)

// Bounds of waiting for the kernel.
const (
	// killWait bounds how long processes may take to end, to stop or to go on. When they end, the
	// kernel removes their namespaces one after the other: for 100 hosts this takes six seconds on
	// two busy processors.
	killWait = 30 * time.Second
	// pollStep is the interval at which the package polls a state that the kernel changes.
	pollStep = time.Millisecond
	// maxKillRounds bounds the rounds of killing. Each round kills the processes that others have
	// started since the round before.
	maxKillRounds = 1000
)

// keeper finds and stops the processes of a rack's nodes. A node is a host, the switch, a timer or
// the watcher.
type keeper interface {
	// prepare makes the objects that the processes of a node need, such as a cgroup. It is called
	// before the node starts.
	prepare(node string) error
	// adopt adds a process, which launcher.launch has started, to the node.
	adopt(node string, pid int) error
	// pids lists the live processes of a node.
	pids(node string) ([]int, error)
	// kill ends every process of a node, including stopped ones, and waits until they are gone.
	kill(node string) error
	// hang stops every process of a node if on is true, and continues them otherwise. It returns
	// when all have stopped or continued.
	hang(node string, on bool) error
	// hung reports whether a node hangs.
	hung(node string) (bool, error)
	// clear kills all processes of the rack, and removes their cgroups. It does nothing if there
	// are none.
	clear() error
}

func timerNode(name string) string { return "timers/" + name }

// procStat has the fields of a process in /proc/PID that this package uses.
type procStat struct {
	pid, ppid int
	state     byte
	start     uint64 // clock ticks since boot
	nspid     int    // the process ID in the innermost pid namespace of the process
}

// readProc reads the state of a process from /proc. ok is false if the process is gone.
func readProc(pid int) (p procStat, ok bool) {
	f := container.Stat(pid)
	if f == nil {
		return p, false
	}
	p.pid, p.state = pid, f[0][0]
	p.ppid, _ = strconv.Atoi(f[1])
	p.start, _ = strconv.ParseUint(f[len(f)-1], 10, 64)
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return p, false
	}
	for line := range strings.Lines(string(status)) {
		if list, found := strings.CutPrefix(line, "NSpid:"); found {
			if ids := strings.Fields(list); len(ids) > 0 {
				p.nspid, _ = strconv.Atoi(ids[len(ids)-1])
			}
		}
	}
	return p, true
}

// processes reads the processes named by pids that are alive, and returns them with the oldest
// first.
func processes(pids []int) []procStat {
	var out []procStat
	for _, pid := range pids {
		if p, ok := readProc(pid); ok && p.state != 'Z' && p.state != 'X' {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b procStat) int {
		if a.start != b.start {
			return int(int64(a.start) - int64(b.start))
		}
		return a.pid - b.pid
	})
	return out
}

// initAndDaemon returns the process ID of a node's process 1, and that of its oldest child, which
// is the daemon; 0 means that there is no such process. On a rack with a shared process, process 1 is
// the daemon, too. ps has the oldest process first. A younger process 1 is that of a pid namespace
// which a program on the node has made.
func initAndDaemon(ps []procStat, shared bool) (first, daemon int) {
	for _, p := range ps {
		if p.nspid == 1 && first == 0 {
			first = p.pid
		}
	}
	if shared {
		return first, first
	}
	for _, p := range ps {
		if first != 0 && p.ppid == first && daemon == 0 {
			daemon = p.pid
		}
	}
	return first, daemon
}

// waitFor calls done every pollStep until done returns true or an error. After the time bound,
// waitFor returns an error; `what` names the awaited event in the text of this error.
func waitFor(bound time.Duration, what string, done func() (bool, error)) error {
	deadline := time.Now().Add(bound)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not after %v", what, bound)
		}
		time.Sleep(pollStep)
	}
}

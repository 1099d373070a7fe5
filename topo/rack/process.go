package rack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// Bounds of starting a node.
const (
	// readyWait bounds how long a daemon may take until it answers. On two processors with a load
	// of 28, a daemon that started together with others took more than 10 s. The death of a daemon
	// is noticed at once.
	readyWait = 30 * time.Second
	// readyPoll is the interval at which a starting daemon is asked for its status, if no more than
	// readyNodes start together. It grows with their number: with 256 of them, to ask cost more than to
	// start.
	readyPoll  = 3 * time.Millisecond
	readyNodes = 16
	// deathPolls is how many times a starting daemon is asked until its processes are looked at again,
	// which costs more.
	deathPolls = 8
	// answerWait bounds how long a daemon may take for one answer.
	answerWait = time.Second
	// logTail is how many lines from the end of a dead node's log an error shows.
	logTail = 5
)

// programName is the name under which ps shows the processes of this program, and with which their
// error messages begin.
const programName = "rdmalab"

// startProcess starts a node's process 1 in the node's namespaces and cgroup. The process goes on
// when the caller ends.
func (l launcher) startProcess(node string) error {
	const flags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	args := []string{"node-init", "--rack-dir", l.paths.Dir, "--name", node}
	if l.spec.Shared() {
		args = append(args, "--shared")
	}
	if l.spec.IsSwitch(node) {
		args = append(args, "--switch")
	}
	if l.spec.LogJSON {
		args = append(args, "--log-json", l.spec.Name)
	}
	return l.spawn(node, node, flags, func(start func() error) error {
		return nl.Do(l.paths.Netns(l.spec.NamespaceOf(node)), func() error { return l.place(node, start) })
	}, args...)
}

// waitAnswer waits until a daemon answers: that of a node, or the watcher of containers. kept is
// the name under which the keeper has the processes of the daemon. If the daemon dies, the error contains
// the end of its log.
func (l launcher) waitAnswer(ctx context.Context, node, kept string) error {
	poll := readyPoll * time.Duration(1+len(nodesOf(l.spec))/readyNodes)
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	client := control.NewClient(l.paths.Socket(node))
	for polls := 0; ; polls++ {
		err := answer(ctx, client, nil)
		if err == nil {
			return nil
		}
		if errors.Is(err, control.ErrNotRunning) && polls%deathPolls == 0 {
			// Process 1 of the node's PID namespace starts before the daemon and ends after it. So
			// if the node has no process, the daemon has died; otherwise it may still be starting.
			if pids, aerr := l.keep.pids(kept); aerr != nil || len(processes(pids)) == 0 {
				return errors.Join(fmt.Errorf("%s died while it started; its log ends with\n%s", node, l.tail(node)), aerr)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer within %v: %w; its log ends with\n%s", node, readyWait, err, l.tail(node))
		case <-time.After(poll):
		}
	}
}

// answer asks a daemon for its status and stores it in out, unless out is nil.
func answer(ctx context.Context, client *control.Client, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return client.Call(ctx, "GET", "/status", nil, out)
}

func (l launcher) tail(node string) string {
	b, err := os.ReadFile(l.paths.Log(node))
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return "  (nothing)"
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	lines = lines[max(0, len(lines)-logTail):]
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "  %s\n", l)
	}
	return strings.TrimRight(out.String(), "\n")
}

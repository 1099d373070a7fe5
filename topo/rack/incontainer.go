package rack

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/crashlog"
	"github.com/rdmalab/rdmalab/topo/nl"
)

const (
	// nicPoll is the interval at which waitNIC checks for the NIC of a container.
	nicPoll = 5 * time.Millisecond
	// nicWatch is the interval at which watchNIC checks whether the NIC was replaced.
	nicWatch = 250 * time.Millisecond
)

// containerNode has the state of process 1 of a host's container.
type containerNode struct {
	dir  string
	rack *rackfile.Rack
	host *rackfile.Host
	log  io.Writer
	note noter
	// daemon is the process ID of the daemon; 0 means that the daemon does not run. replaced is
	// true if the daemon was killed because the NIC was replaced.
	daemon   atomic.Int64
	replaced atomic.Bool
}

// ContainerInit runs as process 1 of a host's container. It waits for the NIC, runs the host's
// daemon, reaps orphaned processes, and ends with the daemon. If the NIC is replaced by another
// one, for example by `docker network disconnect` and connect, ContainerInit restarts the daemon.
// The daemon's output goes to the rack's log and to the engine's log. ContainerInit returns the
// exit status of the container.
func ContainerInit(dir, host string) int {
	p := rackfile.Paths{Dir: dir}
	early := noterTo(os.Stderr, p, "node", host)
	fail := func(err error) int {
		early(slog.LevelError, "the container does not begin", "error", err)
		return 1
	}
	if os.Getpid() != 1 {
		return fail(errors.New("is started by the engine only, as process 1 of a container"))
	}
	data, err := os.ReadFile(p.Spec())
	if err != nil {
		return fail(fmt.Errorf("rack description: %w: is the rack's folder mounted?", err))
	}
	s, err := rackfile.Decode(data)
	if err != nil {
		return fail(err)
	}
	h, _, ok := s.Host(host)
	if !ok {
		return fail(fmt.Errorf("rack %q has no host %q", s.Name, host))
	}
	file, err := os.OpenFile(p.Log(host), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fail(err)
	}
	out := io.MultiWriter(file, os.Stderr)
	return (&containerNode{dir: dir, rack: s, host: h, log: out, note: noterTo(out, p, "node", host)}).run()
}

// run runs the daemon until it ends, and returns its exit status. If the daemon was killed because
// the container's interface was replaced (see watchNIC), run starts it again instead.
func (n *containerNode) run() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		for sig := range signals { // the loop ends with the process
			if pid := n.daemon.Load(); pid > 1 {
				_ = unix.Kill(int(pid), sig.(syscall.Signal)) // the daemon may have ended already
				continue
			}
			os.Exit(exitSignalled + int(sig.(syscall.Signal)))
		}
	}()
	out, drain, err := n.tee()
	if err != nil {
		n.note(slog.LevelError, "pipe for the output of the daemon", "error", err)
		return 1
	}
	defer drain()
	for {
		index := n.waitNIC()
		n.replaced.Store(false)
		pid, err := n.startDaemon(out)
		if err != nil {
			n.note(slog.LevelError, "start daemon", "error", err)
			return 1
		}
		n.daemon.Store(int64(pid))
		ended := make(chan struct{})
		go n.watchNIC(index, pid, ended)
		status := reap(pid, n.noteEnd)
		n.daemon.Store(0)
		close(ended)
		if !n.replaced.Load() {
			return status
		}
	}
}

// noteEnd writes how the daemon has ended. The end of a daemon that a new NIC replaces is no error: another
// daemon starts.
func (n *containerNode) noteEnd(level slog.Level, text string, attributes ...any) {
	if n.replaced.Load() {
		level = slog.LevelInfo
	}
	n.note(level, text, attributes...)
}

// tee returns a file for the daemon's output. The data written to it goes to standard error and to the rack's log, in
// a log of JSON by a crashlog.Filter. drain waits for the rest of it when the last daemon has ended.
func (n *containerNode) tee() (file *os.File, drain func(), err error) {
	if n.rack.LogJSON {
		p, err := crashlog.NewPipe(n.log, "rack", n.rack.Name, "host", n.host.Name)
		if err != nil {
			return nil, nil, err
		}
		return p.File, p.Drain, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	go func() { _, _ = io.Copy(n.log, r) }() // an error of the log must not stop the daemon
	return w, func() {}, nil
}

// startDaemon starts the host's daemon on the processors that the rack's description names.
func (n *containerNode) startDaemon(out *os.File) (pid int, err error) {
	err = nl.OnOwnThread(func() error {
		return launcher{spec: n.rack}.place(n.host.Name, func() error {
			pid, err = syscall.ForkExec("/proc/self/exe", []string{programName, "host", "--rack-dir", n.dir, "--name", n.host.Name}, &syscall.ProcAttr{
				Env: crashlog.Env(), Files: []uintptr{0, out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
			})
			return err
		})
	})
	return pid, err
}

// nic returns the interface index of the container's NIC. It returns false if the NIC is not ready:
// it does not exist, is down or has no address yet.
func (n *containerNode) nic() (int, bool) {
	l, err := nl.LinkByName("", rackfile.HostIfname)
	if err != nil || !l.Up {
		return 0, false
	}
	addrs, err := nl.Addrs("", rackfile.HostIfname)
	return l.Index, err == nil && (!n.host.IPv4.IsValid() || slices.Contains(addrs, n.rack.Prefix4(n.host)))
}

// waitNIC waits until the NIC is ready, without a time limit, and returns its interface index.
func (n *containerNode) waitNIC() int {
	for i := 0; ; i++ {
		if index, ok := n.nic(); ok {
			return index
		}
		if i == int(5*time.Second/nicPoll) {
			n.note(slog.LevelWarn, "waits for its NIC; if the NIC does not come, no rack connects this container: see `rdmalab status`", "interface", rackfile.HostIfname)
		}
		time.Sleep(nicPoll)
	}
}

// watchNIC kills the daemon when the NIC is replaced, which it sees by the interface index.
func (n *containerNode) watchNIC(index, pid int, ended <-chan struct{}) {
	tick := time.NewTicker(nicWatch)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if now, ok := n.nic(); ok && now != index {
			n.note(slog.LevelWarn, "the NIC was replaced: the daemon restarts")
			n.replaced.Store(true)
			_ = unix.Kill(pid, unix.SIGKILL) // the daemon may have ended already
			return
		}
	}
}

// ContainerHold runs as process 1 of a holder, a container that only holds the network of a host.
// It ends on SIGTERM.
func ContainerHold() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	<-signals
	return 0
}

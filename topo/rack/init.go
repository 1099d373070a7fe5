package rack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/crashlog"
)

// exitSignalled plus n is the exit status for a process that signal n has killed. Shells use the
// same.
const exitSignalled = 128

// NodeKind says what daemon a node has.
type NodeKind struct {
	// Switch is true for a switch, and false for a host.
	Switch bool
	// LogJSON is the name of the rack if the daemon's log is JSON: then all that the daemon writes to its standard
	// error becomes records. "" means text.
	LogJSON string
	// Stand stands for the node in the rack's shared process until ctx ends, in place of a daemon; nil
	// if the node has a daemon. The error says why the node has ended by itself.
	Stand func(ctx context.Context) error
}

// NodeInit runs as process 1 of a node. It makes the node's mounts, starts the node's daemon or stands for
// the node itself, reaps orphaned processes of the node, and ends with the daemon. dir is the rack's state
// folder. The machine's files stay visible on the node, so that it can run the machine's programs. NodeInit
// returns the exit status.
func NodeInit(dir, node string, kind NodeKind) int {
	note := noterTo(os.Stderr, rackfile.Paths{Dir: dir}, "node", node)
	if os.Getpid() != 1 {
		note(slog.LevelError, "is started by `rdmalab up` only, as process 1 of a pid namespace")
		return 1
	}
	if err := passGate(); err != nil {
		note(slog.LevelError, "the node does not begin", "error", err)
		return 1
	}
	paths, tree := rackfile.Paths{Dir: dir}, ""
	if !kind.Switch {
		tree = paths.VerbsTree(node)
	}
	if err := makeMounts(paths, tree, note); err != nil {
		note(slog.LevelError, "mounts of the node", "error", err)
		return 1
	}
	if err := unix.Sethostname([]byte(node)); err != nil {
		note(slog.LevelError, "set host name", "error", err)
		return 1
	}
	if kind.Stand != nil {
		return stand(kind.Stand, note)
	}
	var pipe *crashlog.Pipe
	var err error
	if kind.LogJSON != "" {
		pipe, err = crashlog.NewPipe(os.Stderr, "rack", kind.LogJSON, "host", node)
	}
	if err != nil {
		note(slog.LevelError, "start daemon", "error", err)
		return 1
	}
	pid, err := startDaemon(dir, node, kind.Switch, pipe)
	if err != nil {
		note(slog.LevelError, "start daemon", "error", err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		for s := range signals { // the loop ends with the process
			_ = unix.Kill(pid, s.(syscall.Signal)) // the daemon may have ended already
		}
	}()
	return reap(pid, func(level slog.Level, text string, attributes ...any) {
		if pipe != nil {
			pipe.Drain() // why the daemon has ended comes first
		}
		note(level, text, attributes...)
	})
}

// stand reaps processes and lets f stand for the node, until f ends or a signal ends it.
func stand(f func(context.Context) error, note noter) int {
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer cancel()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() { // the loop ends with the process
		reapOrphans() // of before
		for range children {
			reapOrphans()
		}
	}()
	if err := f(ctx); err != nil {
		note(slog.LevelError, "the node has ended by itself", "error", err)
		return 1
	}
	return 0
}

// reapOrphans reaps the child processes that have ended.
func reapOrphans() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != nil && !errors.Is(err, unix.EINTR) || err == nil && pid == 0 {
			return
		}
	}
}

// startDaemon starts the daemon of a node. Its output goes to the pipe, and to that of this process if pipe is nil.
func startDaemon(dir, node string, isSwitch bool, pipe *crashlog.Pipe) (int, error) {
	args := []string{programName, "host", "--rack-dir", dir, "--name", node}
	if isSwitch {
		args = []string{programName, "switchd", "--rack-dir", dir, "--name", node}
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if pipe != nil {
		attr.Env, attr.Files = crashlog.Env(), []uintptr{0, pipe.File.Fd(), pipe.File.Fd()}
		defer func() { _ = pipe.File.Close() }() // the daemon has it
	}
	return syscall.ForkExec("/proc/self/exe", args, attr)
}

// reap reaps child processes until the daemon has ended, and returns the daemon's exit status.
func reap(daemon int, note noter) int {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			note(slog.LevelError, "wait for the daemon", "error", err)
			return 1
		case pid == daemon && ws.Signaled():
			note(slog.LevelError, "the daemon was killed", "signal", ws.Signal().String())
			return exitSignalled + int(ws.Signal())
		case pid == daemon:
			level := slog.LevelInfo
			if ws.ExitStatus() != 0 {
				level = slog.LevelError
			}
			note(level, "the daemon has ended", "status", ws.ExitStatus())
			return ws.ExitStatus()
		}
	}
}

// makeMounts makes the mounts of a node in the mount namespace of the calling process. tree is the
// folder that takes the place of parts of /sys, by which programs find the node's NIC; "" means
// that the node has no NIC.
func makeMounts(p rackfile.Paths, tree string, note noter) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// This mount namespace has copies of the machine's mounts. Those below StateRoot, except the
	// rack's tmpfs, are removed here: such a copy would keep the namespaces of another rack or node
	// alive after the end of that rack or node. A switch keeps the machine's own namespace, for its trunks.
	if err := leaveOthers(p, tree == "", note); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// A new sysfs shows the node's interfaces instead of the machine's.
	if err := unix.Mount("sysfs", "/sys", "sysfs", flags, ""); err != nil {
		note(slog.LevelWarn, "mount /sys", "error", err)
	}
	if tree != "" {
		if err := mountClasses(tree); err != nil {
			note(slog.LevelWarn, "programs do not find the NIC in /sys/class", "error", err)
		}
	}
	if err := unix.Mount(p.Hosts(), "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		note(slog.LevelWarn, "names of the rack are not in /etc/hosts", "error", err)
	}
	return nil
}

// mountClasses shows the host's NIC in /sys/class and /sys/devices/virtual, for programs that find it there
// and not by libibverbs. The daemon writes the files of tree later.
func mountClasses(tree string) error {
	for _, folder := range []string{"class", "devices/virtual"} {
		own, shown := filepath.Join(tree, folder), "/sys/"+folder
		for _, kind := range kindsOfRDMA {
			if err := os.MkdirAll(filepath.Join(own, kind), 0o755); err != nil {
				return err
			}
		}
		if err := mountOver(own, shown); err != nil {
			return err
		}
		for _, kind := range kindsOfRDMA {
			if err := mountLive(filepath.Join(own, kind), filepath.Join(shown, kind)); err != nil {
				return fmt.Errorf("%s: %w", filepath.Join(shown, kind), err)
			}
		}
	}
	return nil
}

// kindsOfRDMA are the folders of RDMA devices in /sys/class and in /sys/devices/virtual.
var kindsOfRDMA = []string{"infiniband", "infiniband_verbs"}

// mountLive shows a folder at another place, where it cannot be written. What the daemon changes in the
// folder is seen there at once; an overlay would keep showing the files that it has looked up first.
func mountLive(own, shown string) error {
	if err := unix.Mount(own, shown, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	return unix.Mount("", shown, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

// mountOver makes a folder of sysfs an overlay of a folder on it. An overlay does not follow changes of its
// layers: folders that change are mounted over it by mountLive.
// Interfaces come and go, so the folder net is mounted over it again as that of sysfs.
func mountOver(own, folder string) error {
	interfaces := folder + "/net"
	net, err := unix.Open(interfaces, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", interfaces, err)
	}
	defer func() { _ = unix.Close(net) }() // the descriptor is used only to name the folder
	if err := unix.Mount("rdma", folder, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "lowerdir="+own+":"+folder); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", net), interfaces, "", unix.MS_BIND, "")
}

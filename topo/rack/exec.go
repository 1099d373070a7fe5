package rack

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// nodeNamespaces are the namespaces of a node that a program enters with setns(2) to run on the
// node.
const nodeNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID

// Exit statuses for a program that could not be started. Shells use the same ones.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// Exec runs a program on a node, in the node's namespaces and cgroup, with the caller's terminal
// and files. It returns the program's exit status, or 128 + n if signal n has ended it. Exec passes
// signals to the caller on to the program. The program dies with the node.
func (r *Rack) Exec(node string, argv []string) (int, error) {
	if err := r.checkNode(node); err != nil {
		return 0, err
	}
	if os.Geteuid() != 0 {
		return 0, rackError(r.Spec.Name, errExec(r.Spec, node))
	}
	pidfd, err := r.initFD(node)
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd) // the pidfd is used only to enter the namespaces
	// The process on the node first runs ExecInit of this program, so that the requested program
	// does nothing before it is in the node's cgroup.
	join, own := nodeNamespaces, uintptr(0)
	if !r.Spec.IsSwitch(node) {
		join, own = r.hosts().view()
	}
	cmd := exec.Command(r.exe, "exec-init", "--", argv[0])
	if own != 0 {
		cmd.Args = []string{r.exe, "exec-init", "--rack-dir", r.Paths.Dir, "--", argv[0]}
	}
	cmd.Args[0] = programName
	cmd.Args = append(cmd.Args, argv...)
	if !r.Spec.IsSwitch(node) {
		env, err := r.ProgramEnv(node, InheritedEnv())
		if err != nil {
			return 0, err
		}
		cmd.Env = append(os.Environ(), env...) // if a variable is set twice, the last value is valid
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	tty := foreground()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: tty != nil, Cloneflags: own}
	// Signals are caught before the program starts, so that none is lost.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	err = r.launcher().launch(node, cmd, func() error {
		err := startInside(pidfd, join, cmd, argv[0])
		if err == nil && tty != nil {
			err = tty.lend(cmd.Process.Pid)
		}
		return err
	})
	if tty != nil {
		defer tty.takeBack()
	}
	if err != nil {
		return startStatus(node, argv[0], err)
	}
	pid := cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		return 0, err
	}
	return wait(pid, tty, signals)
}

// initFD returns a pidfd of a node's process 1. It returns an error if this process does not run,
// or if the node hangs.
func (r *Rack) initFD(node string) (int, error) {
	pids, err := r.keep.pids(node)
	if err != nil {
		return -1, err
	}
	first, _ := initAndDaemon(processes(pids), r.Spec.Shared())
	if first == 0 {
		return -1, stateError(false, "%s has crashed; `rdmalab restart %s` brings it back", node, node)
	}
	if hung, err := r.keep.hung(node); err != nil || hung {
		return -1, errors.Join(stateError(!hung, "%s hangs; `rdmalab resume %s` ends it", node, node), err)
	}
	fd, err := unix.PidfdOpen(first, 0)
	if err != nil {
		return -1, fmt.Errorf("process 1 of %s: %w", node, err)
	}
	// The process ID may have been reused before the pidfd was opened.
	if now, err := r.keep.pids(node); err != nil || !slices.Contains(now, first) {
		return -1, errors.Join(stateError(false, "%s has crashed just now", node), err, unix.Close(fd))
	}
	return fd, nil
}

// startInside starts cmd from a thread that has entered some namespaces of the process that pidfd
// names. join has the flags of these namespaces (CLONE_NEW…).
func startInside(pidfd, join int, cmd *exec.Cmd, program string) error {
	return nl.OnOwnThread(func() error {
		// A thread that shares its working directory with others may not change its mount
		// namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("enter: %w", err)
		}
		dir, dirErr := os.Getwd()
		if err := unix.Setns(pidfd, join); err != nil {
			return fmt.Errorf("enter: %w", err)
		}
		// setns has changed the working directory to the root of the node. Nodes see the machine's
		// files, so the caller's folder exists there, too.
		if dirErr == nil {
			_ = unix.Chdir(dir) // if the folder cannot be entered, the program starts in the root
		}
		path, err := exec.LookPath(program)
		if err != nil {
			return err
		}
		cmd.Args[slices.Index(cmd.Args, "--")+1] = path
		return cmd.Start()
	})
}

// ExecInit is the first stage of a program that Exec starts. It waits until the process that calls
// Exec has put this process into the node's cgroup, and then executes the program at path. It
// returns only if the program cannot be executed, with an exit status.
//
// If the program shares the mount namespace of a node, dir is "". If the program has a mount
// namespace of its own, dir is the rack's state folder, and ExecInit makes the node's mounts.
func ExecInit(dir, path string, argv []string) int {
	err := passGate()
	if err == nil && dir != "" {
		err = makeMounts(rackfile.Paths{Dir: dir}, os.Getenv(uverbs.EnvTree), func(slog.Level, string, ...any) {})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", programName, err)
		return exitNotExecutable
	}
	err = unix.Exec(path, argv, os.Environ())
	fmt.Fprintf(os.Stderr, "%s: %s: %v\n", programName, path, err)
	return exitNotExecutable
}

func startStatus(node, program string, err error) (int, error) {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitNotFound, fmt.Errorf("%s: program %q was not found", node, program)
	case errors.Is(err, fs.ErrPermission):
		return exitNotExecutable, fmt.Errorf("%s: program %q may not be executed (%w)", node, program, err)
	}
	return exitNotExecutable, fmt.Errorf("%s: %w", node, err)
}

// wait passes signals on to a program until the program ends, and returns its exit status.
func wait(pid int, tty *terminal, signals <-chan os.Signal) (int, error) {
	type event struct {
		ws  unix.WaitStatus
		err error
	}
	events := make(chan event)
	goOn := make(chan struct{})
	go func() { // the goroutine ends with the program
		for {
			var e event
			if _, e.err = unix.Wait4(pid, &e.ws, unix.WUNTRACED, nil); errors.Is(e.err, unix.EINTR) {
				continue
			}
			events <- e
			if !e.ws.Stopped() {
				return
			}
			<-goOn
		}
	}()
	for {
		select {
		case s := <-signals:
			if tty != nil || !terminalSends(s) {
				_ = unix.Kill(pid, s.(syscall.Signal)) // the program may have ended already
			}
		case e := <-events:
			switch {
			case e.err != nil:
				return 0, fmt.Errorf("wait for the program: %w", e.err)
			case e.ws.Stopped():
				if tty != nil {
					tty.suspend(pid)
				}
				goOn <- struct{}{}
			case e.ws.Signaled():
				return exitSignalled + int(e.ws.Signal()), nil
			default:
				return e.ws.ExitStatus(), nil
			}
		}
	}
}

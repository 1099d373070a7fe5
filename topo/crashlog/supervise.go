package crashlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envSupervised is the environment variable with the process ID of the parent that reads a process's standard error.
const envSupervised = "RDMALAB_SUPERVISED"

// drainWait bounds how long Drain waits for the end of the output.
const drainWait = 2 * time.Second

// exitSignalled plus n is the exit status for a process that signal n has ended, as shells have it.
const exitSignalled = 128

// Supervised reports whether the parent of this process reads its standard error.
func Supervised() bool { return os.Getenv(envSupervised) == strconv.Itoa(os.Getppid()) }

// Env returns the environment for a process whose standard error this process reads.
func Env() []string { return append(os.Environ(), envSupervised+"="+strconv.Itoa(os.Getpid())) }

// Pipe is the way of a process's output to a Filter.
type Pipe struct {
	// File is the end for the process. The caller closes it when the process has it, or calls Drain.
	File *os.File
	read chan struct{} // closes at the end of the output
	f    *Filter
}

// NewPipe returns a Pipe to a new Filter.
func NewPipe(out io.Writer, attributes ...any) (*Pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for the output of the daemon: %w", err)
	}
	p := &Pipe{File: w, read: make(chan struct{}), f: NewFilter(out, attributes...)}
	go func() {
		defer close(p.read)
		_, _ = io.Copy(p.f, r) // Write of a Filter does not fail
		_ = r.Close()
	}()
	return p, nil
}

// Drain is called when the process has ended: it waits until all of its output is written, at most two seconds if another
// process keeps it open.
func (p *Pipe) Drain() {
	_ = p.File.Close() // it may be closed
	select {
	case <-p.read:
	case <-time.After(drainWait):
	}
	_ = p.f.Close()
}

// Supervise runs the program again with the same command line, as a child that is Supervised, until it ends. It passes
// on the signals that end programs, and the child's standard error by a Filter to out. It returns the child's exit
// status. The child gets SIGTERM if this process is killed.
func Supervise(out io.Writer, attributes ...any) (int, error) {
	runtime.LockOSThread() // the child gets its signal when the thread that has started it ends
	defer runtime.UnlockOSThread()
	p, err := NewPipe(out, attributes...)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0], cmd.Env = os.Args[0], Env()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, p.File
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		p.Drain()
		return 0, err
	}
	_ = p.File.Close() // the child has it
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended already
			continue
		case err = <-ended:
		}
		break
	}
	p.Drain()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return 0, err
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return exitSignalled + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

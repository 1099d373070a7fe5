package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// goTest is a call of `go test -json`. Tests are not vetted: make check does that once, and not each
// run in its way of building.
type goTest struct {
	dir  string   // of the module; "" means this one
	race bool     // with the race detector, if there is a C compiler
	env  []string // added to the environment
	args []string
	// under is a command that runs the go command in a session of its own at another priority; nil means
	// none.
	under []string
}

// cc reports whether there is a C compiler, which the race detector needs.
func cc() bool {
	for _, name := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

// goCommand is the go command, which the Makefile names where it is not in the path.
func goCommand() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}

// builtProgram lets suites take what `make build` has made; without it each builds its own.
func builtProgram() []string {
	path, err := filepath.Abs("bin/rdmalab")
	if err != nil {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return []string{"RDMALAB_E2E_PROGRAM=" + path}
}

// command returns the call, whose processes are a group that ends with ctx.
func (c goTest) command(ctx context.Context) *exec.Cmd {
	args := append(append([]string{}, c.under...), goCommand(), "test", "-vet=off", "-json")
	env := append(os.Environ(), c.env...)
	if c.race && cc() {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	}
	cmd := group(ctx, c.under == nil, env, append(args, c.args...))
	cmd.Dir = c.dir
	return cmd
}

// run runs the call, and adds what it says to t, also that it failed. It calls started, if that is not nil,
// when the command runs. An error means that the command could not be run or read, or that ctx has ended.
func (c goTest) run(ctx context.Context, t *tally, started func(*exec.Cmd)) error {
	cmd := c.command(ctx)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	if err := errors.Join(err, in.Close()); err != nil {
		return err
	}
	if started != nil {
		started(cmd)
	}
	over := make(chan error, 1) // beside the output, which a process that ignores the signal may keep open
	go func() { over <- ended(ctx, cmd) }()
	readErr := read(out, t)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, out) // so that the go command can end
	}
	err = <-over
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.commandFailed(exit)
		err = nil
	}
	return errors.Join(readErr, err)
}

// endWait bounds how long a command may take to end after a signal before it is killed: specs clean up, and Ginkgo
// gives them 30 s.
const endWait = 60 * time.Second

// group returns a command whose processes get SIGINT when ctx ends, which the go command and Ginkgo know as the end of
// a run that is to clean up. They are a session of their own; with session false the command makes one by itself.
func group(ctx context.Context, session bool, env, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = endWait
	return cmd
}

// ended waits for the command, and kills what is left of its group if a signal has ended it.
func ended(ctx context.Context, cmd *exec.Cmd) error {
	err := cmd.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually all have ended
		return fmt.Errorf("%s was ended: %w", cmd.Path, context.Cause(ctx))
	}
	return err
}

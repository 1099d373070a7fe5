package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// slowProgram makes a program whose execution blocks until release is called: a lease on its file
// makes execve wait. A process that starts it stays in vfork for that time.
func slowProgram(t *testing.T) (path string, release func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "slow")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	f, err := os.Open(path)
	must(t, err)
	lease := func(kind int) error {
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, kind)
		return err
	}
	if err := lease(unix.F_WRLCK); err != nil {
		must(t, f.Close())
		t.Skipf("files here have no leases: %v", err)
	}
	// The kernel sends SIGIO, which is ignored by default, to the holder of a lease that must end.
	release = func() { must(t, errors.Join(lease(unix.F_UNLCK), f.Close())) }
	return path, release
}

// inVfork starts on cn0 a shell that starts a slow program, and waits until the shell is in vfork.
// It returns a function that lets the slow program be executed.
func inVfork(t *testing.T, r *Rack) (release func()) {
	t.Helper()
	path, release := slowProgram(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.Exec("cn0", []string{"sh", "-c", path + "; :"}) // it is killed at the end
	}()
	t.Cleanup(func() {
		if _, err := r.Apps("cn0").Crash(context.Background()); !errors.Is(err, ErrNotUp) { // after success the rack is down
			must(t, err)
		}
		<-ended
	})
	var ps []procStat
	err := waitFor(patience, "vfork", func() (bool, error) {
		pids, err := r.keep.pids("cn0")
		ps = apps(processes(pids), false)
		return len(ps) == 2 && ps[0].state == uninterruptible && ps[1].state == 'S', err
	})
	if err != nil {
		release()
		if len(ps) != 2 {
			t.Fatalf("programs %+v: %v", ps, err)
		}
		t.Skipf("the shell of this machine does not call vfork, or execve does not wait for leases: %v", err)
	}
	return release
}

// A process in vfork cannot stop before its child has executed a program.
func TestHangOfProgramsInVfork(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		programs := r.Apps("cn0")
		release := inVfork(t, r)
		hung := make(chan error, 1)
		go func() {
			n, err := programs.Hang(t.Context())
			if err == nil && n != 2 {
				t.Errorf("%d programs hang, want 2", n)
			}
			hung <- err
		}()
		must(t, waitFor(patience, "SIGSTOP to the shell", func() (bool, error) {
			ps, err := programs.programs()
			return len(ps) == 2 && stopPends(t, ps[0].pid), err
		}))
		release()
		must(t, <-hung)
		ps, err := programs.programs()
		if err != nil || len(ps) != 2 || ps[0].state != stoppedProc || ps[1].state != stoppedProc {
			t.Errorf("programs after the hang: %+v, %v", ps, err)
		}
		if n, err := programs.Resume(t.Context()); n != 2 || err != nil {
			t.Errorf("resumed %d programs, %v; want 2", n, err)
		}
	})
}

// The hang of a whole host ends as well while a process is in vfork: the freezer of the kernel
// knows of vfork, the keeper without cgroups must.
func TestHangOfHostInVfork(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		release := inVfork(t, r)
		hung := make(chan error, 1)
		go func() { hung <- r.Hang(t.Context(), "cn0") }()
		must(t, waitFor(patience, "SIGSTOP to the shell, or the hang", func() (bool, error) {
			ps, err := r.Apps("cn0").programs()
			return len(hung) > 0 || len(ps) == 2 && stopPends(t, ps[0].pid), err
		}))
		release()
		must(t, <-hung)
		if s := stateOf(t, r, "cn0"); s != StateHung {
			t.Errorf("cn0 is %s, want hung", s)
		}
		must(t, r.Resume(t.Context(), "cn0"))
		eventually(t, r, "cn0", StateUp)
	})
}

// stopPends reports whether SIGSTOP was sent to a process that has not stopped yet.
func stopPends(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if set, ok := strings.CutPrefix(line, "ShdPnd:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			must(t, err)
			return bits&(1<<(unix.SIGSTOP-1)) != 0
		}
	}
	return false
}

func TestStopper(t *testing.T) {
	// The processes are children of the test: their ends are certain, and nothing else signals them.
	program := func() int {
		cmd := exec.Command("sleep", "600")
		must(t, cmd.Start())
		t.Cleanup(func() {
			must(t, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
		})
		return cmd.Process.Pid
	}
	parent, child := program(), program()
	state := func(pid int) byte {
		p, _ := readProc(pid)
		return p.state
	}
	becomes := func(pid int, want byte) {
		t.Helper()
		must(t, waitFor(patience, "state "+string(want), func() (bool, error) { return state(pid) == want, nil }))
	}
	var s stopper
	round := func(parentState, childState byte, done bool) {
		t.Helper()
		got, err := s.round([]procStat{{pid: parent, state: parentState}, {pid: child, ppid: parent, state: childState}})
		if err != nil || got != done {
			t.Errorf("round with a parent in %c, its child in %c: %v, %v; want %v", parentState, childState, got, err, done)
		}
	}
	round('R', 'R', false) // vfork has made the child; the parent does not sleep yet
	becomes(parent, stoppedProc)
	becomes(child, stoppedProc)
	round('D', 'T', false)
	becomes(child, 'S') // the child goes on, so that its parent can stop
	round('D', 'S', false)
	if got := state(child); got != 'S' {
		t.Errorf("the child is in state %c while its parent sleeps, want S", got)
	}
	round('T', 'S', false)
	becomes(child, stoppedProc)
	round('T', 'T', false) // it may have started another process before
	round('T', 'T', true)
	if s.stopped != 2 {
		t.Errorf("stopped %d processes, want 2", s.stopped)
	}
	ps := []procStat{{pid: parent}, {pid: child}, {pid: 1 << 30}}
	must(t, s.undo(ps))
	becomes(parent, 'S')
	becomes(child, 'S')
	must(t, unix.Kill(child, unix.SIGSTOP)) // as a debugger, or a user, does
	becomes(child, stoppedProc)
	s = stopper{}
	round('D', 'T', false)
	if got := state(child); got != stoppedProc {
		t.Errorf("a process that others have stopped was continued: state %c", got)
	}
	must(t, s.undo(ps))
	if state(child) != stoppedProc {
		t.Error("a process that others have stopped was continued by undo")
	}
}

func TestProcessesThatDoNotStopAreNamed(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	must(t, cmd.Start())
	defer func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}()
	late := errors.New("late")
	var s stopper
	if err := s.explain(late); !errors.Is(err, late) || err.Error() != late.Error() {
		t.Errorf("with no process left: %v", err)
	}
	s.left = []procStat{{pid: cmd.Process.Pid}, {pid: 1 << 30}}
	want := fmt.Sprintf("process %d (sleep) of parent %d in state S", cmd.Process.Pid, os.Getpid())
	must(t, waitFor(patience, "sleep", func() (bool, error) {
		p, _ := readProc(cmd.Process.Pid)
		return p.state == 'S' && strings.Contains(describe(s.left), "(sleep)"), nil
	}))
	if err := s.explain(late); !errors.Is(err, late) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v; want %q in it", err, want)
	}
	for range 2 * maxDescribed {
		s.left = append(s.left, s.left[0])
	}
	if got := describe(s.left); !strings.HasSuffix(got, fmt.Sprintf("and %d more", len(s.left)-maxDescribed)) {
		t.Errorf("of many processes: %s", got)
	}
	if got := describe(s.left[1:2]); got != "the processes have ended since" {
		t.Errorf("of a process that is gone: %s", got)
	}
}

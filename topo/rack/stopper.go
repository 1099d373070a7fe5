package rack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// States of a process in /proc/PID/stat.
const (
	uninterruptible = 'D' // sleeps, and no signal but SIGKILL wakes it
	stoppedProc     = 'T' // stopped by a signal
	tracedProc      = 't' // stopped by a debugger
)

// calmRounds is the number of successive rounds that must find all programs stopped, or ended. A
// process may have been born after the first of these rounds had listed the processes. The second
// round lists it; none is born later, because programs that have stopped or ended start no others.
const calmRounds = 2

// stopper stops processes by SIGSTOP. Its method round is called again and again, with the live
// processes of that time, until it returns true.
//
// A process that has called vfork, as shells and the Go runtime do to start a program, sleeps
// uninterruptibly until its child has executed the program. A child that was stopped before that
// would keep its parent from stopping. So a stopper stops no child of a process that sleeps
// uninterruptibly, and continues a child that it has stopped too early.
type stopper struct {
	reached map[int]bool // processes that got SIGSTOP
	calm    int          // rounds since the last one that found a process that was not stopped
	left    []procStat   // processes that the last round did not find stopped
	stopped int          // processes that the last round found stopped, and that got SIGSTOP
}

// round sends signals to the processes that need one. It returns true when calmRounds rounds in
// succession have found all processes stopped.
func (s *stopper) round(ps []procStat) (bool, error) {
	if s.reached == nil {
		s.reached = make(map[int]bool)
	}
	sleeps := make(map[int]bool)
	for _, p := range ps {
		sleeps[p.pid] = p.state == uninterruptible
	}
	var halt, release []procStat
	s.left, s.stopped = s.left[:0], 0
	for _, p := range ps {
		halted := p.state == stoppedProc || p.state == tracedProc
		switch {
		case !halted && !sleeps[p.ppid]:
			halt = append(halt, p)
		case p.state == stoppedProc && sleeps[p.ppid] && s.reached[p.pid]:
			release = append(release, p)
		}
		switch {
		case !halted:
			s.left = append(s.left, p)
		case s.reached[p.pid]:
			s.stopped++
		}
	}
	if s.calm++; len(s.left) > 0 {
		s.calm = 0
	}
	return s.calm >= calmRounds, errors.Join(send(halt, unix.SIGSTOP, s.reached), send(release, unix.SIGCONT, s.reached))
}

// explain adds a description of the processes that did not stop to err, the error that ended the
// rounds. It must be called before undo.
func (s *stopper) explain(err error) error {
	if len(s.left) == 0 {
		return err
	}
	return fmt.Errorf("%w; end what has not stopped, or try again; all goes on now: %s", err, describe(s.left))
}

// undo continues those of the processes that got SIGSTOP from the stopper, also those that have not
// stopped yet.
func (s *stopper) undo(ps []procStat) error {
	ps = slices.DeleteFunc(ps, func(p procStat) bool { return !s.reached[p.pid] })
	return send(ps, unix.SIGCONT, s.reached)
}

// send sends a signal to processes, and adds those that got it to reached. A process that is gone
// is no error.
func send(ps []procStat, sig unix.Signal, reached map[int]bool) (err error) {
	for _, p := range ps {
		if kerr := unix.Kill(p.pid, sig); kerr == nil {
			reached[p.pid] = true
		} else if !errors.Is(kerr, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("%v to process %d: %w", sig, p.pid, kerr))
		}
	}
	return err
}

// maxDescribed bounds how many processes an error text describes.
const maxDescribed = 8

// describe names processes, each with its state and the function of the kernel in which it sleeps,
// for the text of an error. A process that has ended meanwhile is left out.
func describe(ps []procStat) string {
	var out []string
	for i, p := range ps {
		if i == maxDescribed {
			out = append(out, fmt.Sprintf("and %d more", len(ps)-i))
			break
		}
		dir := filepath.Join("/proc", strconv.Itoa(p.pid))
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if now, ok := readProc(p.pid); ok && err == nil {
			text := fmt.Sprintf("process %d (%s) of parent %d in state %c", p.pid, strings.TrimSpace(string(name)), now.ppid, now.state)
			// "0" means that the process does not sleep.
			if place, err := os.ReadFile(filepath.Join(dir, "wchan")); err == nil && len(place) > 0 && string(place) != "0" {
				text += " at " + string(place)
			}
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return "the processes have ended since"
	}
	return strings.Join(out, ", ")
}

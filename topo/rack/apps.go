package rack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Apps are the programs that run on a host: all processes except process 1 and the daemon. The
// daemon has the NIC and the registered memory, so both go on when Apps crash or hang. Jobs that
// run inside the daemon are not among Apps; a caller ends or stops them by a request to the daemon.
type Apps struct {
	rack *Rack
	host string
}

// Apps returns the programs that run on a host.
func (r *Rack) Apps(host string) Apps { return Apps{r, host} }

// Crash kills the programs. It returns how many processes it has killed.
func (a Apps) Crash(ctx context.Context) (int, error) {
	r, host := a.rack, a.host
	if err := r.CheckHost(host); err != nil {
		return 0, err
	}
	ended := make(map[int]bool)
	err := r.locked(ctx, func() error {
		for range maxKillRounds {
			pids, err := r.keep.pids(host)
			if err != nil {
				return err
			}
			left := apps(processes(pids))
			if err := send(left, unix.SIGKILL, ended); err != nil || len(left) == 0 {
				return err
			}
			time.Sleep(pollStep) // the loop goes on until none is left, because programs may have started others
		}
		return fmt.Errorf("the programs on %s start others faster than they are ended", host)
	})
	return len(ended), err
}

// Hang stops the programs by a signal. It returns how many processes it has stopped, without those
// that a signal or a debugger had stopped before.
func (a Apps) Hang(ctx context.Context) (int, error) {
	return a.signal(ctx, unix.SIGSTOP, func(p procStat) bool { return p.state != stoppedProc && p.state != tracedProc })
}

// Resume continues the programs that are stopped, and returns how many processes they were.
func (a Apps) Resume(ctx context.Context) (int, error) {
	return a.signal(ctx, unix.SIGCONT, func(p procStat) bool { return p.state == stoppedProc })
}

// States of a stopped process in /proc/PID/stat.
const (
	stoppedProc = 'T' // stopped by a signal
	tracedProc  = 't' // stopped by a debugger
)

// signal sends a signal to all programs for which needs returns true, again and again until needs
// is false for all programs. It returns how many processes got the signal.
func (a Apps) signal(ctx context.Context, sig unix.Signal, needs func(procStat) bool) (int, error) {
	r, host := a.rack, a.host
	if err := r.CheckHost(host); err != nil {
		return 0, err
	}
	reached := make(map[int]bool)
	err := r.locked(ctx, func() error {
		return waitFor(killWait, "the programs on "+host, func() (bool, error) {
			pids, err := r.keep.pids(host)
			if err != nil {
				return false, err
			}
			left := slices.DeleteFunc(apps(processes(pids)), func(p procStat) bool { return !needs(p) })
			return len(left) == 0, send(left, sig, reached)
		})
	})
	return len(reached), err
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

// apps returns the processes of a host without process 1 and the daemon; none if there is no
// process 1.
func apps(ps []procStat) (out []procStat) {
	first, daemon := initAndDaemon(ps)
	for _, p := range ps {
		if first != 0 && p.pid != first && p.pid != daemon {
			out = append(out, p)
		}
	}
	return out
}

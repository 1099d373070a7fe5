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
	ended := make(map[int]bool)
	err := a.locked(ctx, func() error {
		calm := 0
		for range maxKillRounds {
			left, err := a.programs()
			if err != nil {
				return err
			}
			if err := send(left, unix.SIGKILL, ended); err != nil {
				return err
			}
			if calm++; len(left) > 0 {
				calm = 0
			}
			if calm >= calmRounds {
				return nil
			}
			time.Sleep(pollStep) // the loop goes on until none is left, because programs may have started others
		}
		return fmt.Errorf("the programs on %s start others faster than they are ended", a.host)
	})
	return len(ended), err
}

// Hang stops the programs by a signal. It returns how many processes it has stopped, without those
// that a signal or a debugger had stopped before. If not all programs stop in time, Hang continues
// those that it has stopped, and its error names the others.
func (a Apps) Hang(ctx context.Context) (int, error) {
	var s stopper
	err := a.locked(ctx, func() error {
		err := a.untilAll(s.round)
		if err == nil {
			return nil
		}
		ps, perr := a.programs()
		return errors.Join(s.explain(err), perr, s.undo(ps))
	})
	return s.stopped, err
}

// Resume continues the programs that are stopped, and returns how many processes they were.
func (a Apps) Resume(ctx context.Context) (int, error) {
	reached := make(map[int]bool)
	err := a.locked(ctx, func() error {
		return a.untilAll(func(ps []procStat) (bool, error) {
			left := slices.DeleteFunc(ps, func(p procStat) bool { return p.state != stoppedProc })
			return len(left) == 0, send(left, unix.SIGCONT, reached)
		})
	})
	return len(reached), err
}

// locked takes the rack's lock for a call of f. It fails if there is no such host.
func (a Apps) locked(ctx context.Context, f func() error) error {
	if err := errors.Join(a.rack.CheckHost(a.host), a.rack.checkNode(a.host)); err != nil {
		return err
	}
	return a.rack.locked(ctx, f)
}

// programs lists the programs that are alive.
func (a Apps) programs() ([]procStat, error) {
	pids, err := a.rack.keep.pids(a.host)
	return apps(processes(pids), a.rack.Spec.Shared()), err
}

// untilAll calls round with the programs that are alive, again and again until round returns true or
// an error.
func (a Apps) untilAll(round func([]procStat) (bool, error)) error {
	return waitFor(killWait, "the programs on "+a.host, func() (bool, error) {
		ps, err := a.programs()
		if err != nil {
			return false, err
		}
		return round(ps)
	})
}

// apps returns the processes of a host without process 1 and the daemon; none if there is no
// process 1.
func apps(ps []procStat, shared bool) (out []procStat) {
	first, daemon := initAndDaemon(ps, shared)
	for _, p := range ps {
		if first != 0 && p.pid != first && p.pid != daemon {
			out = append(out, p)
		}
	}
	return out
}

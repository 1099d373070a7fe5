package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
)

// Action is the way in which a timer (a process of the rack) ends a fault.
type Action string

// Actions, each of which ends a fault of a node, its link, its NIC, its programs or the partition.
const (
	ActionResume       Action = "resume"
	ActionRestart      Action = "restart"
	ActionLinkUp       Action = "link-up"
	ActionNIC          Action = "nic-up"
	ActionApps         Action = "apps-start"
	ActionResumeApps   Action = "apps-resume"
	ActionEndPartition Action = "partition-mend"
)

// MaxAfter is the longest time after which a timer may end a fault.
const MaxAfter = 24 * time.Hour

// Doer performs an action on a node.
type Doer func(ctx context.Context, r *Rack, node string) error

// Doers returns the actions that this package can perform. The caller adds the actions for which it
// sends requests to daemons.
func Doers() map[Action]Doer {
	return map[Action]Doer{
		ActionResume:  func(ctx context.Context, r *Rack, node string) error { return r.Resume(ctx, node) },
		ActionRestart: func(ctx context.Context, r *Rack, node string) error { return r.Restart(ctx, node) },
		ActionLinkUp:  func(ctx context.Context, r *Rack, node string) error { return r.Link(ctx, node, true) },
	}
}

// After makes the action a happen on a node after the time d. A process of the rack, the timer,
// performs it, so that it happens even if the caller ends, and does not happen after Down. A later
// After for the same node and kind of fault replaces the timer. Crash, Hang, Resume, Restart and
// Link cancel the timer of the fault that they make or end; for other faults the caller does.
func (r *Rack) After(ctx context.Context, d time.Duration, a Action, node string) error {
	if d <= 0 || d > MaxAfter {
		return fmt.Errorf("duration %v is out of bounds; use one above 0 and at most %v", d, MaxAfter)
	}
	check := r.checkNode
	if a == ActionLinkUp || a == ActionNIC {
		check = r.CheckHost // a further NIC of a host has these timers, too
	}
	if _, trunk := r.Spec.TrunkNamed(node); trunk && a == ActionLinkUp || a == ActionEndPartition {
		check = func(string) error { return nil } // the partition is one of the rack
	}
	if err := check(node); err != nil {
		return err
	}
	if r.far != nil {
		return errors.New("a rack on several machines has no timers on its client: leave out --for, and end it by `rdmalab heal`")
	}
	return r.locked(ctx, func() error { return r.launcher().startTimer(d, a, node) })
}

// apart has the suffixes of timer names for actions that do not end a crash or hang of the node
// itself. Each of these actions has its own timer on a node.
var apart = map[Action]string{ActionLinkUp: ".link", ActionNIC: ".nic", ActionApps: ".apps", ActionResumeApps: ".hung-apps", ActionEndPartition: ".partition"}

// timerName returns the name of the timer of an action. A node, its link, its NIC, its programs and
// the partition have at most one timer each.
func (a Action) timerName(node string) string {
	return strings.ReplaceAll(node, rackfile.NICMark, ".") + apart[a]
}

// Cancel ends the timer that After has started for action a on a node, if it still waits.
func (r *Rack) Cancel(ctx context.Context, a Action, node string) error {
	if r.far != nil {
		return nil // After has started none
	}
	return r.locked(ctx, func() error { return cancelTimer(r.keep, a.timerName(node)) })
}

func (l launcher) startTimer(d time.Duration, a Action, node string) error {
	name := a.timerName(node)
	if err := cancelTimer(l.keep, name); err != nil {
		return err
	}
	return l.spawn(timerNode(name), "timers", 0, here,
		"timer", "--rack", l.spec.Name, "--after", d.String(), "--action", string(a), "--node", node)
}

// cancelTimer ends the timer with this name, unless the caller is that timer.
func cancelTimer(k keeper, name string) error {
	node := timerNode(name)
	pids, err := k.pids(node)
	if err != nil {
		return err
	}
	if len(pids) == 0 || slices.Contains(pids, os.Getpid()) {
		return nil
	}
	return k.kill(node)
}

// RunTimer is the program of the process that After starts. It waits for the time d and then
// performs the action `do` on the node.
func RunTimer(ctx context.Context, open func() (*Rack, error), d time.Duration, do Doer, node string) error {
	if err := passGate(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
	}
	r, err := open()
	if err != nil {
		return err
	}
	if err := do(ctx, r, node); !errors.Is(err, ErrState) {
		return err
	}
	return nil // another controller has ended the fault already
}

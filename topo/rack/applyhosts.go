package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// mark says that a host is being added or removed. The mark stays until unmark, also if the program
// dies.
func (a Applier) mark(host string) error {
	file := a.rack.Paths.Unfinished(host)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o644)
}

func (a Applier) unmark(host string) error {
	return ignoreMissing(os.Remove(a.rack.Paths.Unfinished(host)))
}

// addHost makes a host of the target rack: its namespace, its link, the switch's port and its process.
// It returns when the host's daemon answers. The switch has the port before the daemon starts, as when
// a rack comes up.
func (a Applier) addHost(ctx context.Context, host string, target *rackfile.Rack) error {
	w, place, ok := target.Host(host)
	if !ok {
		return fmt.Errorf("the plan has no host %s", host)
	}
	if err := a.mark(host); err != nil {
		return err
	}
	err := a.describe(func(s *rackfile.Rack) {
		// The hosts come in the order of the target.
		at := slices.IndexFunc(s.Hosts, func(h rackfile.Host) bool {
			_, other, ok := target.Host(h.Name)
			return ok && other > place
		})
		if at < 0 {
			at = len(s.Hosts)
		}
		s.Hosts = slices.Insert(s.Hosts, at, *w)
	})
	if err != nil {
		return err
	}
	a.rack.reached("described " + host)
	if err := nl.Create(a.rack.Paths.Netns(host)); err != nil {
		return err
	}
	if err := a.rack.links().make(w); err != nil {
		return err
	}
	a.rack.reached("linked " + host)
	if err := a.tell(ctx, a.rack.Spec.SwitchNames()); err != nil {
		return err
	}
	if err := a.rack.startNode(ctx, host); err != nil {
		return err
	}
	a.rack.reached("started " + host)
	if err := a.rack.launcher().waitAnswer(ctx, host, host); err != nil {
		return err
	}
	a.rack.links().settle(ctx, host)
	return a.unmark(host)
}

// removeHost ends all processes of a host, and removes its link, port, namespace and files. It is no
// error if parts of the host are not there.
func (a Applier) removeHost(ctx context.Context, host string) error {
	if err := a.mark(host); err != nil {
		return err
	}
	errs := []error{cancelTimer(a.rack.keep, host)}
	for action := range apart {
		errs = append(errs, cancelTimer(a.rack.keep, action.timerName(host)))
	}
	if err := errors.Join(append(errs, a.rack.keep.kill(host))...); err != nil {
		return err
	}
	if err := a.rack.shared().awaitEnd(host, killWait); err != nil {
		return err
	}
	a.rack.reached("killed " + host)
	port := host
	if h, _, ok := a.rack.Spec.Host(host); ok {
		port = h.Port
	}
	if err := nl.DeleteLink(a.rack.Paths.Netns(rackfile.SwitchName), port); err != nil {
		return err
	}
	err := a.describe(func(s *rackfile.Rack) {
		s.Hosts = slices.DeleteFunc(s.Hosts, func(h rackfile.Host) bool { return h.Name == host })
		s.Faults = slices.DeleteFunc(s.Faults, func(f fault.Rule) bool { return f.Link == host })
	})
	if err != nil {
		return err
	}
	if err := a.tell(ctx, a.rack.Spec.SwitchNames()); err != nil {
		return err
	}
	a.rack.reached("unplugged " + host)
	if err := nl.Remove(a.rack.Paths.Netns(host)); err != nil {
		return err
	}
	if err := a.removeFiles(host); err != nil {
		return err
	}
	return a.unmark(host)
}

// removeFiles removes the files of a host, and its cgroup.
func (a Applier) removeFiles(host string) error {
	p := a.rack.Paths
	var errs []error
	for _, file := range []string{p.Socket(host), p.Verbs(host), p.Netlink(host), p.VerbsTree(host), p.VerbsPreload(host), p.OneRMA(host), p.Incarnation(host), p.Crashed(host), p.Broken(host), p.Log(host)} {
		errs = append(errs, os.RemoveAll(file))
	}
	if k, ok := a.rack.keep.(*cgroupKeeper); ok {
		for _, node := range append([]string{host}, timersOf(host)...) {
			if err := removeCgroups(k.of(node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// timersOf lists the nodes of the timers that a host may have.
func timersOf(host string) []string {
	nodes := []string{timerNode(host)}
	for a := range apart {
		nodes = append(nodes, timerNode(a.timerName(host)))
	}
	return nodes
}

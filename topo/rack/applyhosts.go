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
func (r Applier) mark(host string) error {
	file := r.Paths.Unfinished(host)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o644)
}

func (r Applier) unmark(host string) error { return ignoreMissing(os.Remove(r.Paths.Unfinished(host))) }

// addHost makes a host of the target rack: its namespace, its link, the switch's port and its process.
// It returns when the host's daemon answers. The switch has the port before the daemon starts, as when
// a rack comes up.
func (r Applier) addHost(ctx context.Context, host string, target *rackfile.Rack) error {
	w, place, ok := target.Host(host)
	if !ok {
		return fmt.Errorf("the plan has no host %s", host)
	}
	if err := r.mark(host); err != nil {
		return err
	}
	err := r.describe(func(s *rackfile.Rack) {
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
	r.reached("described " + host)
	if err := nl.Create(r.Paths.Netns(host)); err != nil {
		return err
	}
	if err := r.makeLink(w); err != nil {
		return err
	}
	r.reached("linked " + host)
	if err := r.tell(ctx, r.Spec.SwitchNames()); err != nil {
		return err
	}
	if err := r.starter().startNode(ctx, host); err != nil {
		return err
	}
	r.reached("started " + host)
	if err := r.starter().waitReady(ctx, host); err != nil {
		return err
	}
	r.starter().settle(ctx, host)
	return r.unmark(host)
}

// removeHost ends all processes of a host, and removes its link, port, namespace and files. It is no
// error if parts of the host are not there.
func (r Applier) removeHost(ctx context.Context, host string) error {
	if err := r.mark(host); err != nil {
		return err
	}
	errs := []error{r.starter().cancelTimer(host)}
	for a := range apart {
		errs = append(errs, r.starter().cancelTimer(a.timerName(host)))
	}
	if err := errors.Join(append(errs, r.keep.kill(host))...); err != nil {
		return err
	}
	if err := processOf(r.Rack).awaitEnd(host, killWait); err != nil {
		return err
	}
	r.reached("killed " + host)
	port := host
	if h, _, ok := r.Spec.Host(host); ok {
		port = h.Port
	}
	if err := nl.DeleteLink(r.Paths.Netns(rackfile.SwitchName), port); err != nil {
		return err
	}
	err := r.describe(func(s *rackfile.Rack) {
		s.Hosts = slices.DeleteFunc(s.Hosts, func(h rackfile.Host) bool { return h.Name == host })
		s.Faults = slices.DeleteFunc(s.Faults, func(f fault.Rule) bool { return f.Link == host })
	})
	if err != nil {
		return err
	}
	if err := r.tell(ctx, r.Spec.SwitchNames()); err != nil {
		return err
	}
	r.reached("unplugged " + host)
	if err := nl.Remove(r.Paths.Netns(host)); err != nil {
		return err
	}
	if err := r.removeFiles(host); err != nil {
		return err
	}
	return r.unmark(host)
}

// removeFiles removes the files of a host, and its cgroup.
func (r Applier) removeFiles(host string) error {
	p := r.Paths
	var errs []error
	for _, file := range []string{p.Socket(host), p.Verbs(host), p.Netlink(host), p.VerbsTree(host), p.VerbsPreload(host), p.OneRMA(host), p.Incarnation(host), p.Crashed(host), p.Broken(host), p.Log(host)} {
		errs = append(errs, os.RemoveAll(file))
	}
	if k, ok := r.keep.(*cgroupKeeper); ok {
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

package rack

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/rackplan"
)

// Up brings a rack up, and waits until every daemon answers. First it removes the remains of an
// earlier rack of the same name. If the rack is already up, Up at most restarts processes (see
// Rack.Revived), and returns ErrAlreadyUp with a valid handle. With ErrDifferent or ErrBusy, or if
// the caller is not root, Up leaves what it finds. After an error while it builds the rack, nothing
// of the rack is left.
func Up(ctx context.Context, s *rackfile.Rack) (*Rack, error) {
	r := handle(s.Name)
	r.Spec = s
	return r, builder{rack: r}.up(ctx)
}

// UpInContainers is Up for a rack whose hosts are containers.
func UpInContainers(ctx context.Context, s *rackfile.Rack, in container.Settings) (*Rack, error) {
	r := handle(s.Name)
	r.Spec = s
	r.useContainers(in)
	switch {
	case s.Cable == rackfile.CableMemory:
		return r, rackError(s.Name, onlyProcesses("cable", s.Cable, rackfile.CableVeth))
	case s.HasNICs():
		return r, rackError(s.Name, errors.New("a host that is a container has one NIC: leave out `nics` in the rack file, or --runtime docker"))
	case s.Fabric != nil:
		return r, rackError(s.Name, errors.New("hosts that are containers have one switch: leave out `fabric` in the rack file, or --runtime docker"))
	case s.Shared():
		return r, rackError(s.Name, onlyProcesses("daemons", s.Daemons, rackfile.DaemonsSeparate))
	case s.Priority == rackfile.PriorityRealtime:
		return r, rackError(s.Name, onlyProcesses("priority", s.Priority, rackfile.PriorityNormal))
	}
	return r, builder{rack: r}.up(ctx)
}

// onlyProcesses is the error for a rack of containers whose file has a value that containers cannot
// have: they share no memory with the switch, and many kernels refuse them real-time priority.
func onlyProcesses(key, value, other string) error {
	return fmt.Errorf("its rack file says `%s: %s`, which is for hosts that are processes: take `%s: %s`, or leave out --runtime docker", key, value, key, other)
}

// UpSlice is Up for the part of a rack that this machine runs. The secret is kept where only root reads
// it. A slice of another generation, or with another secret, is ErrForeign, and stays.
func UpSlice(ctx context.Context, s *rackfile.Rack, secret []byte) (*Rack, error) {
	r := handle(s.Name)
	r.Spec = s
	return r, builder{r, secret}.up(ctx)
}

// builder brings a rack up. It removes the remains of an earlier rack, and makes the state folder,
// namespaces, links and nodes.
type builder struct {
	rack *Rack
	// secret is that of a slice; nil if the rack has one machine.
	secret []byte
}

func (b builder) up(ctx context.Context) error {
	r := b.rack
	if os.Geteuid() != 0 {
		return rackError(r.Spec.Name, ErrPrivilege)
	}
	if len(r.Spec.Machines) > 0 && b.secret == nil {
		return rackError(r.Spec.Name, errors.New("it is on several machines, and this is no slice of it: bring it up by `rdmalab up`"))
	}
	if _, signals := r.keep.(*signalKeeper); signals && r.Spec.Fabric != nil {
		return rackError(r.Spec.Name, errors.New("several switches need cgroup2, by which their processes are told apart: mount it, or leave out `fabric`"))
	}
	l, err := acquire(ctx, r.Paths)
	if err != nil {
		return rackError(r.Spec.Name, err)
	}
	r.reached("lock")
	if err := b.existing(ctx); err != nil {
		return rackError(r.Spec.Name, errors.Join(err, l.release(false)))
	}
	err = b.build(ctx)
	if err == nil {
		return rackError(r.Spec.Name, l.release(false))
	}
	return rackError(r.Spec.Name, errors.Join(err, r.remover().clear(), l.release(true)))
}

// existing returns the error that Up returns if a rack of that name is up, and nil otherwise. A
// rack that did not come up completely, or of which nodes have died without a command, counts as
// not up, unless its hosts are of another kind (processes or containers): then Up is refused.
// existing restarts other processes that have died, such as the watcher.
func (b builder) existing(ctx context.Context) error {
	r := b.rack
	if _, err := os.Stat(r.Paths.Ready()); err != nil {
		return nil
	}
	old, err := os.ReadFile(r.Paths.Spec())
	if err != nil {
		return nil
	}
	was, err := rackfile.Decode(old)
	if err != nil {
		return nil
	}
	if !b.sameUp(was) {
		return ErrForeign
	}
	saved, err := container.Saved(r.Paths)
	if err != nil {
		return nil
	}
	if now := r.Containers(); (saved == nil) != (now == nil) || saved != nil && *saved != *now {
		return errKind
	}
	if r.Revived, err = r.hosts().revive(ctx); err != nil {
		return err
	}
	if len(r.Revived) > 0 {
		b.awaitRevival(was)
	}
	for _, node := range onMachine(was, append(was.HostNames(), was.SwitchNames()...)) {
		if _, err := os.Stat(r.Paths.Crashed(node)); err == nil {
			continue // a command has crashed the node, so it stays crashed
		}
		if ok, err := r.alive(node); err == nil && !ok {
			r.Lost = append(r.Lost, node)
		}
	}
	switch {
	case len(r.Lost) > 0:
		return nil
	case !sameRack(was, r.Spec):
		return ErrDifferent
	}
	r.Spec = was // an apply may have given its hosts other addresses than those of their places in the file
	return ErrAlreadyUp
}

// sameUp reports whether a rack that is up was made by the same up as this slice; a rack on one machine
// has no such mark.
func (b builder) sameUp(was *rackfile.Rack) bool {
	if was.Machine != b.rack.Spec.Machine || was.Generation != b.rack.Spec.Generation {
		return false
	}
	secret, err := os.ReadFile(b.rack.Paths.Secret())
	return b.secret == nil || err == nil && subtle.ConstantTimeCompare(secret, b.secret) == 1
}

// sameRack reports whether a rack that is up was made from the description now, or has become that of
// the same file by Apply.
func sameRack(was, now *rackfile.Rack) bool {
	p, err := rackplan.Of(rackplan.OfDescription(was), now, false)
	return err == nil && p.Empty()
}

// awaitRevival waits until the hosts of the rack `was` run. Before hostRuntime.revive restarted
// other processes, such as the watcher, these hosts could not start. A host that does not run after
// readyWait counts as lost.
func (b builder) awaitRevival(was *rackfile.Rack) {
	_ = waitFor(readyWait, "hosts", func() (bool, error) {
		for _, host := range onMachine(was, was.HostNames()) {
			if ok, err := b.rack.alive(host); err == nil && !ok && !exists(b.rack.Paths.Crashed(host)) {
				return false, nil
			}
		}
		return true, nil
	})
}

// build makes all parts of the rack, step by step. The controller may be killed after any step;
// Down then removes the parts that exist.
func (b builder) build(ctx context.Context) error {
	r := b.rack
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"clear", func(context.Context) error { return r.remover().clear() }},
		{"state", func(context.Context) error { return makeState(r.Spec, r.Paths, b.secret) }},
		{"namespaces", func(context.Context) error { return makeNamespaces(r.Spec, r.Paths) }},
		{"devices", func(context.Context) error { return takeDevices(r.Spec, r.Paths) }},
		{"links", r.hosts().prepare},
		{"shared", r.launcher().startShared},
		{"processes", func(ctx context.Context) error {
			return each(r.Nodes(), func(node string) error { return r.startNode(ctx, node) })
		}},
		{"answers", func(ctx context.Context) error {
			return each(r.Nodes(), func(node string) error { return r.launcher().waitAnswer(ctx, node, node) })
		}},
		{"trunks", r.links().awaitTrunks},
		{"ready", func(context.Context) error { return os.WriteFile(r.Paths.Ready(), nil, 0o644) }},
	}
	for _, s := range steps {
		err := s.do(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted, and cleared: %w", ctx.Err())
		}
		if err != nil {
			return explain(err)
		}
		r.reached(s.name)
	}
	return nil
}

// explain adds advice to an error of the kinds below, and returns any other err unchanged.
func explain(err error) error {
	switch {
	case errors.Is(err, errRealtime): // the errors of all nodes have the same reason
		return errRealtime
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("no space left: free some on /run, or some memory, and try again (%w)", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		first, _, _ := strings.Cut(err.Error(), "\n") // the errors of all nodes have the same reason
		return fmt.Errorf("%w (%s)", ErrPrivilege, first)
	}
	return err
}

func each(nodes []string, f func(node string) error) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { errs[i] = f(node) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

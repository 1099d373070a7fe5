package rack

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/rackplan"
)

// stateSize are the mount options of a rack's tmpfs. Its size bounds logs and descriptions; it has 1 MiB
// for each port of a switch, whose host keeps there 0.5 MiB of files that show its NIC to programs.
const stateSize = "size=320m,mode=0755"

// Up brings a rack up, and waits until every daemon answers. First it removes the remains of an
// earlier rack of the same name. If the rack is already up, Up at most restarts processes (see
// Rack.Revived), and returns ErrAlreadyUp with a valid handle. With ErrDifferent or ErrBusy, or if
// the caller is not root, Up leaves what it finds. After an error while it builds the rack, nothing
// of the rack is left.
func Up(ctx context.Context, s *rackfile.Rack) (*Rack, error) {
	r := handle(s.Name)
	r.Spec = s
	return r, r.builder().up(ctx)
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
	return r, r.builder().up(ctx)
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
	r.Spec, r.secret = s, secret
	return r, r.builder().up(ctx)
}

// builder brings a rack up. It removes the remains of an earlier rack, and makes the state folder,
// namespaces, links and nodes.
type builder struct{ *Rack }

func (r *Rack) builder() builder { return builder{r} }

func (r builder) up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return rackError(r.Spec.Name, ErrPrivilege)
	}
	if len(r.Spec.Machines) > 0 && r.secret == nil {
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
	if err := r.existing(ctx); err != nil {
		return rackError(r.Spec.Name, errors.Join(err, l.release(false)))
	}
	err = r.build(ctx)
	if err == nil {
		return rackError(r.Spec.Name, l.release(false))
	}
	return rackError(r.Spec.Name, errors.Join(err, r.remover().clear(), l.release(true)))
}

// existing returns the error that Up returns if a rack of that name is up, and nil otherwise. A
// rack that did not come up completely, or of which nodes have died without a command, counts as
// not up, unless its hosts are of another kind (processes or containers): then Up is refused.
// existing restarts other processes that have died, such as the watcher.
func (r builder) existing(ctx context.Context) error {
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
	if !r.sameUp(was) {
		return ErrForeign
	}
	saved, err := container.Saved(r.Paths)
	if err != nil {
		return nil
	}
	if now := r.Containers(); (saved == nil) != (now == nil) || saved != nil && *saved != *now {
		return errKind
	}
	if r.Revived, err = r.hosts.revive(ctx); err != nil {
		return err
	}
	if len(r.Revived) > 0 {
		r.awaitRevival(was)
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
func (r builder) sameUp(was *rackfile.Rack) bool {
	if was.Machine != r.Spec.Machine || was.Generation != r.Spec.Generation {
		return false
	}
	secret, err := os.ReadFile(r.Paths.Secret())
	return r.secret == nil || err == nil && subtle.ConstantTimeCompare(secret, r.secret) == 1
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
func (r builder) awaitRevival(was *rackfile.Rack) {
	_ = waitFor(readyWait, "hosts", func() (bool, error) {
		for _, host := range onMachine(was, was.HostNames()) {
			if ok, err := r.alive(host); err == nil && !ok && !exists(r.Paths.Crashed(host)) {
				return false, nil
			}
		}
		return true, nil
	})
}

// build makes all parts of the rack, step by step. The controller may be killed after any step;
// Down then removes the parts that exist.
func (r builder) build(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"clear", func(context.Context) error { return r.remover().clear() }},
		{"state", func(context.Context) error { return r.makeState() }},
		{"namespaces", func(context.Context) error { return r.makeNamespaces() }},
		{"devices", func(context.Context) error { return r.takeDevices() }},
		{"links", r.hosts.prepare},
		{"shared", func(ctx context.Context) error { return r.starter().startShared(ctx) }},
		{"processes", func(ctx context.Context) error {
			return each(r.Nodes(), func(node string) error { return r.starter().startNode(ctx, node) })
		}},
		{"answers", func(ctx context.Context) error {
			return each(r.Nodes(), func(node string) error { return r.starter().waitReady(ctx, node) })
		}},
		{"trunks", r.starter().awaitTrunks},
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

// makeState mounts the rack's tmpfs and writes the files that the daemons read.
func (r builder) makeState() error {
	p := r.Paths
	if err := os.Mkdir(p.Dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make state folder: %w", err)
	}
	if err := unix.Mount("rdmalab", p.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, stateSize); err != nil {
		return fmt.Errorf("mount state folder %s: %w", p.Dir, err)
	}
	// The mount is made private. Otherwise the pins of namespaces below it would be copied to other
	// mount namespaces, which would keep the namespaces alive.
	if err := unix.Mount("", p.Dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make state folder %s private: %w", p.Dir, err)
	}
	for _, file := range []string{p.Netns("x"), p.Socket("x"), p.Log("x"), p.Crashed("x"), p.Broken("x"), p.Timer("x")} {
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
	}
	if err := os.WriteFile(p.Hosts(), []byte(r.hostsFile()), 0o644); err != nil {
		return err
	}
	if err := r.admit(); err != nil {
		return err
	}
	if r.secret != nil {
		if err := os.WriteFile(p.Secret(), r.secret, 0o600); err != nil {
			return err
		}
	}
	data, err := r.Spec.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(p.Spec(), data, 0o644)
}

// hostsFile returns the content of the file that every host sees as /etc/hosts.
func (r builder) hostsFile() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	line := func(a netip.Addr, name string) { fmt.Fprintf(&b, "%s %s\n", a, name) }
	for i := range r.Spec.Hosts {
		h := &r.Spec.Hosts[i]
		line(h.IPv4, h.HostAlias())
		line(h.IPv6, h.HostAlias())
	}
	return b.String()
}

func (r builder) makeNamespaces() error {
	// Trunks to other machines go out from where this program runs, and network devices are there.
	if len(r.Spec.Machines) > 0 || len(r.Spec.Devices) > 0 {
		if err := nl.Pin(r.Paths.Outside()); err != nil {
			return err
		}
	}
	if err := nl.Create(r.Paths.Netns(rackfile.SwitchName)); err != nil {
		return err
	}
	return nl.DisableIPv6(r.Paths.Netns(rackfile.SwitchName)) // the switch forwards IPv6, but has no IPv6 addresses in this namespace
}

func (r builder) makeLinks() error {
	return each(onMachine(r.Spec, r.Spec.LinkNames()), func(link string) error {
		if h, _, ok := r.Spec.Host(link); ok {
			return r.makeLink(h)
		}
		if _, ok := r.Spec.Devices.Named(link); ok {
			return nil // it exists
		}
		return r.makeTrunk(link)
	})
}

// makeTrunk makes a trunk between two switches, whose ends are in the namespace of all switches.
func (r builder) makeTrunk(name string) error {
	c, _ := r.Spec.TrunkNamed(name)
	if r.Spec.MachineOf(c.Far) != r.Spec.Machine {
		return nil // the switch makes it, by UDP
	}
	leaf, far := c.Ports()
	mtu := r.Spec.LinkMTU // that of the link that carries the longest frames
	for i := range r.Spec.Hosts {
		mtu = max(mtu, r.Spec.MTUOf(&r.Spec.Hosts[i]))
	}
	netns, alias := r.Paths.Netns(rackfile.SwitchName), "rdmalab/"+r.Spec.Name+"/"+name
	return nl.Connect(nl.End{Netns: netns, Name: leaf, Alias: alias}, nl.End{Netns: netns, Name: far, Alias: alias}, mtu)
}

func (r *Rack) makeLink(h *rackfile.Host) error {
	return nl.Connect(r.portEnd(h), r.hostEnd(h), r.Spec.MTUOf(h))
}

func (r *Rack) portEnd(h *rackfile.Host) nl.End { return container.PortEnd(r.Spec, r.Paths, h) }

func (r *Rack) hostEnd(h *rackfile.Host) nl.End {
	return container.HostEnd(r.Spec, h, r.Paths.Netns(h.Name))
}

package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// hostRuntime makes the hosts of a rack, either as processes or as containers (flag --runtime of
// up). The switch and timers (processes that end a fault after --for) are never in containers. The
// keeper, not the hostRuntime, finds and stops the processes of a host.
type hostRuntime interface {
	// prepare makes the objects that hosts need, such as namespaces and links, or an image. It is
	// called before the first host starts.
	prepare(ctx context.Context) error
	// start starts a host. It does not wait until the host's daemon answers.
	start(ctx context.Context, host string) error
	// cut removes the carrier from the links of all NICs of a host, at the host's end. It is no error
	// if the host has no interface.
	cut(host string) error
	// restore is called when the host is about to start. It makes the host's links usable again, or
	// does nothing if the start of the host does that.
	restore(h *rackfile.Host) error
	// view returns how a program enters a host, as flags of namespaces. `join` are the namespaces of
	// the host's process 1 that the program enters. `own` are new namespaces that the program gets;
	// `own` includes a mount namespace if the program must make the host's mounts there.
	view() (join int, own uintptr)
	// linkSet is called before a host's link is cut (up is false) or restored at the switch. For
	// containers it records that, so that a link that is made later is cut, too.
	linkSet(host string, up bool) error
	// revive restarts other processes of the rack that have died, such as the watcher. It returns
	// their names.
	revive(ctx context.Context) ([]string, error)
}

func (r *Rack) hosts() hostRuntime {
	if r.containers != nil {
		return r.containerHosts()
	}
	return processHosts{r.links(), r.launcher()}
}

// processHosts is the hostRuntime of a rack whose hosts are processes. The state folder has pins of
// their namespaces, which keep these alive.
type processHosts struct {
	links    links
	launcher launcher
}

func (b processHosts) prepare(context.Context) error {
	err := each(onMachine(b.links.spec, b.links.spec.HostNames()), func(host string) error { return nl.Create(b.links.paths.Netns(host)) })
	if err != nil {
		return err
	}
	return b.links.makeAll()
}

func (b processHosts) start(_ context.Context, host string) error {
	return b.launcher.startProcess(host)
}

func (b processHosts) cut(host string) error {
	var errs []error
	for _, h := range b.links.spec.NICs(host) {
		errs = append(errs, ignoreMissing(nl.SetUp(b.links.paths.Netns(host), h.Ifname(), false)))
	}
	return errors.Join(errs...)
}

func (b processHosts) restore(host *rackfile.Host) error {
	for _, h := range b.links.spec.NICs(host.Name) {
		if err := b.links.restore(h); err != nil {
			return err
		}
	}
	return nil
}

func (b processHosts) view() (join int, own uintptr) { return nodeNamespaces, 0 }

func (b processHosts) linkSet(string, bool) error { return nil }

func (b processHosts) revive(context.Context) ([]string, error) { return nil, nil }

// ignoreMissing returns nil if err says that an interface or file does not exist, and err
// otherwise.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// containerNamespaces are the namespaces of a container that a program enters to run on its host.
const containerNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID

// startNode starts a switch or a host. It does not wait until the daemon answers.
func (r *Rack) startNode(ctx context.Context, node string) error {
	if r.Spec.IsSwitch(node) {
		return r.launcher().startProcess(node)
	}
	if err := r.hosts().start(ctx, node); err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return nil
}

package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// bodies realises the hosts of a rack. The switch and the timers are processes of this machine in any case. What runs in a
// host is found and stopped by the rack's keeper.
type bodies interface {
	// prepare makes what all hosts need before the first of them starts.
	prepare(ctx context.Context) error
	// start starts a host; it need not answer yet.
	start(ctx context.Context, host string) error
	// cut takes the carrier off a host's link, from the host's side. A host without an interface is fine.
	cut(host string) error
	// mend gives a host that is to start its link back, where that is not a part of starting.
	mend(h *spec.Host) error
	// view says how a program gets the view of a host: the namespaces of the host's process 1 that it joins, and the flags
	// for those that are its own, in which it makes the host's mounts.
	view() (join int, own uintptr)
	// linkSet hears that a host's link was cut or mended at the switch.
	linkSet(host string, up bool) error
	// revive starts again what else belongs to the rack and has died, and says what that was.
	revive(ctx context.Context) ([]string, error)
}

// processBodies are hosts that are processes in namespaces pinned in the state folder.
type processBodies struct{ r *Rack }

var _ bodies = processBodies{}

func (b processBodies) prepare(context.Context) error {
	err := each(b.r.Spec.HostNames(), func(host string) error { return nl.Create(b.r.Paths.Netns(host)) })
	if err != nil {
		return err
	}
	return b.r.makeLinks()
}

func (b processBodies) start(_ context.Context, host string) error { return b.r.startProcess(host) }

func (b processBodies) cut(host string) error {
	return ignoreMissing(nl.SetUp(b.r.Paths.Netns(host), spec.HostIfname, false))
}

func (b processBodies) mend(h *spec.Host) error { return b.r.mendLink(h) }

func (b processBodies) view() (join int, own uintptr) { return nodeNamespaces, 0 }

func (b processBodies) linkSet(string, bool) error { return nil }

func (b processBodies) revive(context.Context) ([]string, error) { return nil, nil }

// ignoreMissing forgives that something is not there.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// containerNamespaces are those of a container that a program of the machine joins to run on its host.
const containerNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID

// startNode starts the switch or a host.
func (r *Rack) startNode(ctx context.Context, node string) error {
	if node == spec.SwitchName {
		return r.startProcess(node)
	}
	if err := r.bodies.start(ctx, node); err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return nil
}

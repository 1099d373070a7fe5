package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// Crash kills all processes of a host or of the switch at once and without warning. The link of a
// crashed host loses its carrier. The links of a crashed switch keep their carrier, but every frame
// on them is lost.
func (r *Rack) Crash(ctx context.Context, node string) error {
	if err := r.checkNode(node); err != nil {
		return err
	}
	return r.locked(ctx, func() error {
		if ok, err := r.alive(node); err != nil || !ok {
			return errors.Join(stateError(ok, "%s has crashed already; `rdmalab restart %s` brings it back", node, node), err)
		}
		err := errors.Join(cancelTimer(r.keep, node), r.crash(node))
		r.links().settle(ctx, node)
		return err
	})
}

func (r *Rack) crash(node string) error {
	// The mark is written before the processes are killed, so that a controller that sees the dead
	// node also sees that a command has crashed it.
	if err := os.WriteFile(r.Paths.Crashed(node), nil, 0o644); err != nil {
		return fmt.Errorf("crash %s: %w", node, err)
	}
	if !r.Spec.IsSwitch(node) {
		if err := r.hosts().cut(node); err != nil {
			return fmt.Errorf("crash %s: %w", node, err)
		}
	}
	if err := r.keep.kill(node); err != nil {
		return err
	}
	return r.shared().awaitEnd(node, killWait)
}

// Hang stops every process of a host or of the switch until Resume. The node sends nothing more,
// but its link keeps its carrier. A host's kernel still answers ARP and ping, as on a machine whose
// programs hang.
func (r *Rack) Hang(ctx context.Context, node string) error {
	return r.hang(ctx, node, true)
}

// Resume continues the processes of a node that Hang has stopped.
func (r *Rack) Resume(ctx context.Context, node string) error {
	return r.hang(ctx, node, false)
}

func (r *Rack) hang(ctx context.Context, node string, on bool) error {
	if err := r.checkNode(node); err != nil {
		return err
	}
	return r.locked(ctx, func() error {
		if ok, err := r.alive(node); err != nil || !ok {
			return errors.Join(stateError(ok, "%s has crashed; `rdmalab restart %s` brings it back", node, node), err)
		}
		is, err := r.keep.hung(node)
		if err != nil {
			return err
		}
		if is == on {
			return hangError(node, on, r.Spec.IsSwitch(node))
		}
		if err := cancelTimer(r.keep, node); err != nil {
			return err
		}
		if on {
			return errors.Join(r.keep.hang(node, true), r.shared().hold(node, true))
		}
		return errors.Join(r.shared().hold(node, false), r.keep.hang(node, false))
	})
}

// hangError returns the error for a request to stop a node that hangs already (on), or to continue
// a node that does not hang.
func hangError(node string, on, isSwitch bool) error {
	switch {
	case on:
		return stateError(false, "%s hangs already; `rdmalab resume %s` ends it", node, node)
	case isSwitch:
		return stateError(false, "%s does not hang", node)
	}
	return stateError(false, "%s does not hang as a whole; `rdmalab resume %s --app` continues programs on it that hang", node, node)
}

// StateError is the error for a request that does not fit the state of the node. Its text says what
// to do. It is an ErrState.
type StateError struct{ Reason string }

func (e *StateError) Error() string { return e.Reason }

func (e *StateError) Is(target error) bool { return target == ErrState }

// stateError returns nil if ok is true, and a StateError with this text otherwise.
func stateError(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return &StateError{fmt.Sprintf(format, args...)}
}

// Restart starts a host or the switch again, from any state, with the same names and addresses. It
// kills running processes first, and returns when the new daemon answers.
func (r *Rack) Restart(ctx context.Context, node string) error {
	if err := r.checkNode(node); err != nil {
		return err
	}
	return r.locked(ctx, func() error {
		if err := errors.Join(cancelTimer(r.keep, node), r.crash(node)); err != nil {
			return err
		}
		if h, _, ok := r.Spec.Host(node); ok {
			if err := r.hosts().restore(h); err != nil {
				return fmt.Errorf("restart %s: %w", node, err)
			}
		}
		if err := errors.Join(r.launcher().startShared(ctx), r.startNode(ctx, node)); err != nil {
			return err
		}
		if err := r.launcher().waitAnswer(ctx, node, node); err != nil {
			return errors.Join(err, r.crash(node))
		}
		r.links().settle(ctx, node)
		return os.Remove(r.Paths.Crashed(node))
	})
}

// setLink sets the switch's end of a host's link up or down. If the host is a container that does
// not run, there may be no link; the host then gets its link in this state when it starts.
func (r *Rack) setLink(h *rackfile.Host, up bool) error {
	if err := r.hosts().linkSet(h.Name, up); err != nil {
		return err
	}
	err := nl.SetUp(r.Paths.Netns(rackfile.SwitchName), h.Port, up)
	if r.Containers() != nil {
		return ignoreMissing(err)
	}
	return err
}

// Link cuts or restores the link of a host's NIC at the switch: both ends lose their carrier, or get it
// back. The other NICs of the host go on.
//
// A trunk between two switches is cut and restored likewise, and the port of a device, which itself stays
// as it is.
func (r *Rack) Link(ctx context.Context, host string, up bool) error {
	trunk, isTrunk := r.Spec.TrunkNamed(host)
	device, isDevice := r.Spec.Devices.Named(host)
	if !isTrunk && !isDevice {
		if err := r.CheckHost(host); err != nil {
			return err
		}
	}
	return r.locked(ctx, func() error {
		err := cancelTimer(r.keep, ActionLinkUp.timerName(host))
		if isDevice {
			return errors.Join(err, r.cutAt(ctx, r.Spec.SwitchOf(device.Name), device.Name, up))
		}
		if isTrunk && trunk.Carried {
			return errors.Join(err, r.linkCarried(ctx, trunk, up))
		}
		if isTrunk {
			port, _ := trunk.Ports()
			return errors.Join(err, nl.SetUp(r.Paths.Netns(rackfile.SwitchName), port, up))
		}
		h, _, _ := r.Spec.Host(host)
		err = errors.Join(err, r.setLink(h, up))
		r.links().settle(ctx, host)
		return err
	})
}

// linkCarried cuts or restores a trunk that datagrams carry, at its ends on this machine. Their switches do that, so
// none of them may hang.
func (r *Rack) linkCarried(ctx context.Context, trunk rackfile.Trunk, up bool) error {
	var errs []error
	for _, at := range trunk.EndsHere() {
		if hung, err := r.keep.hung(at); err == nil && hung {
			return fmt.Errorf("%s hangs, and cannot change the link of its trunk: `rdmalab resume %[1]s`, and try again", at)
		}
	}
	for _, at := range trunk.EndsHere() {
		errs = append(errs, r.cutAt(ctx, at, trunk.Name(), up))
	}
	return errors.Join(errs...)
}

// cutAt makes a switch cut or restore a port that has no interface of its own to set down. A file says that
// it is cut, so that a switch that is started again leaves it so.
func (r *Rack) cutAt(ctx context.Context, at, link string, up bool) error {
	wasUp := !exists(r.Paths.Cut(link))
	if err := markCut(r.Paths.Cut(link), !up); err != nil {
		return err
	}
	if ok, err := r.alive(at); err != nil || !ok {
		return err
	}
	body := struct {
		Name string `json:"name"`
		Up   bool   `json:"up"`
	}{link, up}
	if err := r.Control(at).Call(ctx, "POST", "/trunk", body, nil); err != nil {
		return errors.Join(err, markCut(r.Paths.Cut(link), !wasUp))
	}
	return nil
}

// markCut writes or removes a file that says that a port is cut.
func markCut(file string, cut bool) error {
	if !cut {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644))
}

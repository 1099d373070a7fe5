// Package rack realises a rackfile.Rack on this machine: a namespace, a link and a process for each
// host, and one process for the switch, which owns the other end of every link.
//
// Down removes a rack after any crash, because it finds all parts of a rack by the rack's name. A
// tmpfs at rackfile.PathsOf(name).Dir holds the pins of the namespaces, sockets, logs and the resolved
// description, and a cgroup named rdmalab/<rack> holds every process. On a machine without cgroup2
// the package finds processes by their namespaces instead. It makes and touches nothing else,
// except a lock file beside the tmpfs, and for hosts that are containers what package container
// makes.
//
// Each node (a host or the switch) that is no container runs as
//
//	rdmalab node-init    process 1 of new pid, mount, uts and ipc namespaces; reaps, and ends with its daemon
//	└─ rdmalab host      (or rdmalab switchd) the daemon, whose control socket is rackfile.Paths.Socket
//
// On a rack with a shared process, process 1 has no daemon: it makes that process run the node.
//
// The daemons outlive the controller, which is the program that calls this package. The package
// starts and stops processes and links; it knows nothing of RDMA.
//
// Methods that change a rack take its lock, so that several programs may call them at once.
package rack

import (
	"errors"
	"fmt"
)

// Errors that callers distinguish.
var (
	// ErrNotUp: no rack of that name is up.
	ErrNotUp = errors.New("is not up: run `rdmalab up` first")
	// ErrAlreadyUp is returned by Up if the same rack is up already. Up has changed nothing, except
	// that it may have restarted processes (see Rack.Revived).
	ErrAlreadyUp = errors.New("is up already")
	// ErrDifferent is returned by Up if another rack of that name is up.
	ErrDifferent = errors.New("is up from another rack file: change it by `rdmalab apply -f` the file, run `rdmalab down` first, or choose another name")
	// ErrForeign is returned by UpSlice if a rack of that name is up that this up has not made.
	ErrForeign = errors.New("is up already, by another `rdmalab up`, which has another secret: take it down where that was run, or by `rdmalab down` on this machine, or choose another name")
	// errKind is an ErrDifferent: a rack of that name is up whose hosts are of another kind, or are
	// containers with other container.Settings.
	errKind = fmt.Errorf("its hosts are of another kind, processes or containers, or plugged in another way; it %w", ErrDifferent)
	// ErrBusy: another program holds the rack's lock.
	ErrBusy = errors.New("is being changed by another rdmalab: wait for it to end")
	// ErrState: a node is in the wrong state for the request; see StateError.
	ErrState = errors.New("wrong state")
	// ErrPrivilege: the caller is not root, or is root without the necessary capabilities.
	ErrPrivilege = errors.New("needs root: run the command with sudo; in a container it needs CAP_SYS_ADMIN and CAP_NET_ADMIN")
)

// rackError returns err with the name of the rack in front; nil stays nil.
func rackError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rack %q: %w", name, err)
}

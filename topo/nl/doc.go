// Package nl is the only package of the project that uses network namespaces and netlink: it makes
// pinned namespaces, joins them by veth pairs, configures the ends, and reads their state. It knows
// nothing of racks.
//
// A namespace is named by the path of its pin; the path "" is the caller's own. Every function
// opens what it needs and closes it again, may be called from any goroutine, and leaves no thread
// in a foreign namespace.
//
// Three libraries share the work: vishvananda/netns makes namespaces and holds handles of them,
// vishvananda/netlink configures what is in them, and containernetworking/plugins enters them (its
// Do gives a thread back only when the thread is in its own namespace again, and lets the thread
// end otherwise).
//
// Missing privileges are ErrPrivilege, whichever system call failed.
package nl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrPrivilege means that the caller may not make namespaces or links: it needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN.
var ErrPrivilege = errors.New("no privilege")

// privilegeError is an ErrPrivilege with the refused operation.
type privilegeError struct{ error }

// Is makes it match ErrPrivilege.
func (privilegeError) Is(target error) bool { return target == ErrPrivilege }

// Unwrap returns the kernel's error.
func (e privilegeError) Unwrap() error { return e.error }

// opError adds a description of the operation to err, and marks missing privileges.
func opError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return privilegeError{wrapped}
	}
	return wrapped
}

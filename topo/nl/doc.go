// Package nl is the project's only door to network namespaces and netlink: it makes pinned
// namespaces, joins them by veth pairs, configures the ends, and reads them back. It knows nothing
// of racks.
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
// Missing privileges are ErrPrivilege, whatever the system call that found out.
package nl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrPrivilege says that the caller may not make namespaces or links: it needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN.
var ErrPrivilege = errors.New("no privilege")

// privilegeError is an ErrPrivilege that says what was refused.
type privilegeError struct{ error }

// Is makes it an ErrPrivilege.
func (privilegeError) Is(target error) bool { return target == ErrPrivilege }

// Unwrap gives the kernel's refusal.
func (e privilegeError) Unwrap() error { return e.error }

// opError adds what was being done to err, and marks the kernel's refusals.
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

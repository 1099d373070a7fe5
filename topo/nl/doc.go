// Package nl is the only package of the project that uses network namespaces and netlink: it makes
// pinned namespaces, joins them by veth pairs, configures the ends, and reads their state. It knows
// nothing of racks.
//
// A namespace is named by the path of its pin, a file on which the namespace is mounted; the path
// "" means the caller's namespace. Every function closes what it opens, may be called from any
// goroutine, and leaves no thread in another namespace.
//
// Three libraries are used: vishvananda/netns makes namespaces and holds handles of them,
// vishvananda/netlink configures what is in them, and containernetworking/plugins enters them. The
// Do of the latter returns a thread to Go's pool only if the thread is in its own namespace again;
// otherwise it lets the thread end.
//
// If privileges are missing, the error is ErrPrivilege, whichever system call failed.
package nl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrPrivilege means that the caller may not make namespaces or links: it needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN.
var ErrPrivilege = errors.New("no privilege")

// privilegeError is an ErrPrivilege for an operation that the kernel has refused.
type privilegeError struct{ error }

// Is makes errors.Is(e, ErrPrivilege) true.
func (privilegeError) Is(target error) bool { return target == ErrPrivilege }

// Unwrap returns the kernel's error.
func (e privilegeError) Unwrap() error { return e.error }

// opError adds a description of the operation to err. It makes an error about missing privileges an
// ErrPrivilege.
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

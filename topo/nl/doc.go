// Package nl is the only package of the project that uses network namespaces and netlink. It makes
// pinned namespaces, joins them by veth pairs, configures the ends, and reads their state. It knows
// nothing of racks.
//
// A namespace is named by the path of its pin, a file on which the namespace is mounted. The path
// "" means the caller's namespace. Every function closes what it opens, may be called from any
// goroutine, and leaves no thread in another namespace.
//
// The package uses three libraries: vishvananda/netns makes namespaces and holds handles of them,
// vishvananda/netlink configures interfaces in them, and containernetworking/plugins enters them.
// The function Do of containernetworking/plugins returns a thread to Go's pool only if the thread
// is in its own namespace again. If not, it lets the thread end.
//
// If privileges are missing, the error is ErrPrivilege, whichever system call has failed.
package nl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrPrivilege means that the caller may not make namespaces or links. It needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN.
var ErrPrivilege = errors.New("no privilege")

// privilegeError is an ErrPrivilege: an operation that the kernel has refused.
type privilegeError struct{ error }

func (privilegeError) Is(target error) bool { return target == ErrPrivilege }

func (e privilegeError) Unwrap() error { return e.error }

// opError adds a description of the operation to err. An error about missing privileges becomes an
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

// Package nl is the project's only door to network namespaces and netlink: it makes pinned namespaces, joins them by
// veth pairs, configures the ends, and reads them back. It knows nothing of racks.
//
// A namespace is named by the path of its pin; the path "" is the caller's own. Every function opens what it needs and
// closes it again, may be called from any goroutine, and leaves no thread in a foreign namespace.
//
// Missing privileges are ErrPrivilege, whatever the system call that found out.
package nl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrPrivilege says that the caller may not make namespaces or links.
var ErrPrivilege = errors.New("not allowed: needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN); run it with sudo")

// opError adds what was being done to err, and turns the kernel's refusals into ErrPrivilege.
func opError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w (%w)", what, ErrPrivilege, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

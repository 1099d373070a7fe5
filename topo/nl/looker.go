package nl

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Looker looks at an interface again and again, without entering its namespace each time.
type Looker struct {
	handle *netlink.Handle
	socket int // of the namespace, for ioctls
	name   string
}

// NewLooker returns a Looker for the interface with a name, which need not exist. The caller closes it.
func NewLooker(netns, name string) (*Looker, error) {
	l := &Looker{name: name}
	err := Do(netns, func() (err error) {
		if l.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return opError(err, "interface %s", name)
		}
		if l.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			l.handle.Close()
		}
		return opError(err, "interface %s", name)
	})
	return l, err
}

// Look returns the interface. The error is fs.ErrNotExist if there is none.
func (l *Looker) Look() (Link, error) {
	n, err := named(l.name, l.handle.LinkByName)
	if err != nil {
		return Link{}, err
	}
	return linkOf(n), nil
}

// Passes reports whether the interface is up and has a carrier, by one system call. The error is fs.ErrNotExist if
// there is no such interface.
func (l *Looker) Passes() (bool, error) {
	value := ethtoolValue{cmd: unix.ETHTOOL_GLINK}
	switch err := ethtool(l.socket, l.name, &value); {
	case errors.Is(err, unix.ENODEV):
		return false, fmt.Errorf("interface %s: %w", l.name, fs.ErrNotExist)
	case err != nil:
		return false, opError(err, "interface %s", l.name)
	}
	return value.data != 0, nil
}

// Close releases the sockets of l, which must not be used any more.
func (l *Looker) Close() error {
	l.handle.Close()
	return unix.Close(l.socket)
}

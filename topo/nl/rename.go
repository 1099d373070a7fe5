package nl

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Rename gives an interface another name. It goes down for that, and comes up by Configure. A
// missing one is fs.ErrNotExist.
func Rename(netns, from, to string) error {
	return Do(netns, func() error {
		l, err := byName(from)
		if err != nil {
			return err
		}
		err = errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, to))
		return opError(err, "interface %s: rename to %s", from, to)
	})
}

// Quiet makes the interfaces of the namespace at path say nothing on their own, as those that
// Create makes do.
func Quiet(path string) error {
	return Do(path, func() error {
		quiet()
		return nil
	})
}

package nl

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Rename sets an interface down and changes its name; Configure brings it up again. The error is
// fs.ErrNotExist if there is no such interface.
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

// Quiet stops the interfaces of the namespace at path from sending packets that no program has
// requested. Create does this for new namespaces.
func Quiet(path string) error {
	return Do(path, func() error {
		quiet()
		return nil
	})
}

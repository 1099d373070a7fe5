package nl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is what decides whether an interface that this project has not made can be a port.
type Device struct {
	Link
	// Loopback is true for the loopback, Ethernet if frames on it have Ethernet headers.
	Loopback, Ethernet bool
	// Master is the name of the bridge, bond or other interface of which it is a part; "" means none.
	Master string
	// Default is true if a default route goes out of it.
	Default bool
}

// DeviceByName returns the interface with a name. If there is none, the error lists those that there are.
func DeviceByName(netns, name string) (d Device, err error) {
	err = Do(netns, func() error {
		list, err := dump(netlink.LinkList)
		if err != nil {
			return opError(err, "list interfaces")
		}
		i := slices.IndexFunc(list, func(l netlink.Link) bool { return l.Attrs().Name == name })
		if i < 0 {
			names := make([]string, len(list))
			for i, l := range list {
				names[i] = l.Attrs().Name
			}
			return fmt.Errorf("there is none of that name; there are %s", strings.Join(names, ", "))
		}
		a := list[i].Attrs()
		d = Device{Link: linkOf(list[i]), Loopback: a.EncapType == "loopback", Ethernet: a.EncapType == "ether"}
		for _, l := range list {
			if a.MasterIndex != 0 && l.Attrs().Index == a.MasterIndex {
				d.Master = l.Attrs().Name
			}
		}
		d.Default, err = defaultRoute(a.Index)
		return err
	})
	return d, err
}

// defaultRoute reports whether a default route goes out of an interface.
func defaultRoute(index int) (bool, error) {
	// Without a filter the library leaves out tables other than the main one, which is where default
	// routes are.
	routes, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones > 0 || !r.Dst.IP.IsUnspecified() {
				continue
			}
		}
		if r.Type != unix.RTN_UNICAST {
			continue
		}
		if r.LinkIndex == index || slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return n.LinkIndex == index }) {
			return true, nil
		}
	}
	return false, opError(err, "list routes")
}

// SetUpIndex is SetUp for the interface with a number, whatever its name is now. The error is
// fs.ErrNotExist if there is none.
func SetUpIndex(netns string, index int, up bool) error {
	return Do(netns, func() error {
		l, err := named("", func(string) (netlink.Link, error) { return netlink.LinkByIndex(index) })
		if err != nil {
			return err
		}
		if up {
			return opError(netlink.LinkSetUp(l), "interface %s: set up", l.Attrs().Name)
		}
		return opError(netlink.LinkSetDown(l), "interface %s: set down", l.Attrs().Name)
	})
}

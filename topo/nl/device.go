package nl

import (
	"fmt"
	"net/netip"
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
	// Default is true if a default route goes out of it, or out of a VLAN or another interface above it.
	Default bool
	// Carries lists addresses that are reached by it, likewise.
	Carries []netip.Addr
}

// DeviceByName returns the interface with a name, and says which of the addresses in need are reached by it. If there is
// no such interface, the error lists those that there are.
func DeviceByName(netns, name string, need []netip.Addr) (d Device, err error) {
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
		carries := above(list, a.Index)
		if d.Default, err = defaultRoute(carries); err != nil {
			return err
		}
		for _, to := range need {
			if routes, err := netlink.RouteGet(to.AsSlice()); err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool { return carries[r.LinkIndex] }) {
				d.Carries = append(d.Carries, to)
			}
		}
		return nil
	})
	return d, err
}

// above returns the numbers of an interface and of those whose frames it carries, such as VLANs.
func above(list []netlink.Link, index int) map[int]bool {
	found := map[int]bool{index: true}
	for range list { // as deep as they may be nested
		for _, l := range list {
			if kind := l.Type(); found[l.Attrs().ParentIndex] && kind != "veth" {
				found[l.Attrs().Index] = true
			}
		}
	}
	return found
}

// defaultRoute reports whether a default route goes out of one of the interfaces.
func defaultRoute(out map[int]bool) (bool, error) {
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
		if out[r.LinkIndex] || slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return out[n.LinkIndex] }) {
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

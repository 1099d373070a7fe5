package nl

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxDumps bounds how often a listing is repeated if it changes while the kernel produces it.
const maxDumps = 5

// Link is the state of an interface.
type Link struct {
	Name  string
	Index int
	MAC   wire.MAC
	MTU   int
	Alias string
	// Up is the administrative state. Carrier is true if frames can pass.
	Up, Carrier bool
}

// Links lists the interfaces of a namespace.
func Links(netns string) ([]Link, error) {
	var links []Link
	err := Do(netns, func() error {
		list, err := dump(netlink.LinkList)
		for _, l := range list {
			links = append(links, linkOf(l))
		}
		return opError(err, "list interfaces")
	})
	return links, err
}

// LinkByName returns the interface with a name. The error is fs.ErrNotExist if there is none.
func LinkByName(netns, name string) (Link, error) {
	var link Link
	err := Do(netns, func() error {
		l, err := byName(name)
		if err == nil {
			link = linkOf(l)
		}
		return err
	})
	return link, err
}

func byName(name string) (netlink.Link, error) { return named(name, netlink.LinkByName) }

func named(name string, find func(string) (netlink.Link, error)) (netlink.Link, error) {
	l, err := find(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("interface %s: %w", name, fs.ErrNotExist)
	}
	return l, opError(err, "interface %s", name)
}

func linkOf(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{
		Name: a.Name, Index: a.Index, MTU: a.MTU, Alias: a.Alias,
		Up: a.Flags&net.FlagUp != 0, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
	}
	copy(link.MAC[:], a.HardwareAddr)
	return link
}

// SetUp changes the administrative state of an interface. The other end of a veth pair loses its
// carrier, or gets it back.
func SetUp(netns, name string, up bool) error {
	return Do(netns, func() error { return setUp(name, up) })
}

func setUp(name string, up bool) error {
	l, err := byName(name)
	if err != nil {
		return err
	}
	if up {
		return opError(netlink.LinkSetUp(l), "interface %s: set up", name)
	}
	return opError(netlink.LinkSetDown(l), "interface %s: set down", name)
}

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

// Addrs lists the addresses of an interface.
func Addrs(netns, name string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	err := Do(netns, func() error {
		l, err := byName(name)
		if err != nil {
			return err
		}
		list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				bits, _ := a.Mask.Size()
				out = append(out, netip.PrefixFrom(ip.Unmap(), bits))
			}
		}
		return opError(err, "interface %s: list addresses", name)
	})
	return out, err
}

// dump repeats a listing while the kernel reports that it changed meanwhile, at most maxDumps
// times.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	var out []T
	var err error
	for range maxDumps {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, err
}

// discard is the UDP port of the service that throws everything away (RFC 863).
const discard = 9

// Solicit makes the kernel of a namespace ask for the MAC address of an IP address, by a datagram to it. It
// does not wait for the answer, which Neighbour then finds. The error says that no route leads there. It
// asks for no address of a group or of the host itself.
func Solicit(netns string, ip netip.Addr) error {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() {
		return nil
	}
	return Do(netns, func() error {
		family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: discard, Addr: ip.As16()})
		if ip.Is4() {
			family, to = unix.AF_INET, &unix.SockaddrInet4{Port: discard, Addr: ip.As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return opError(err, "ask for %v", ip)
		}
		defer unix.Close(fd) // the kernel has the datagram already
		return opError(unix.Sendto(fd, nil, 0, to), "ask for %v", ip)
	})
}

// Neighbour returns the MAC address that the kernel knows for an IP address on an interface. The
// bool is false if the kernel knows none.
func Neighbour(netns, ifname string, ip netip.Addr) (wire.MAC, bool, error) {
	var mac wire.MAC
	var found bool
	err := Do(netns, func() error {
		l, err := byName(ifname)
		if err != nil {
			return err
		}
		family := netlink.FAMILY_V6
		if ip.Unmap().Is4() {
			family = netlink.FAMILY_V4
		}
		list, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(l.Attrs().Index, family) })
		const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP
		for _, n := range list {
			if a, ok := netip.AddrFromSlice(n.IP); ok && a.Unmap() == ip.Unmap() && n.State&usable != 0 && len(n.HardwareAddr) == len(mac) {
				copy(mac[:], n.HardwareAddr)
				found = true
			}
		}
		return opError(err, "interface %s: list neighbours", ifname)
	})
	return mac, found, err
}

package nl

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// End is one end of a veth pair.
type End struct {
	// Netns is the pin of the end's namespace.
	Netns string
	// Name is the interface name, at most 15 bytes.
	Name string
	// MAC is the MAC address; zero: the kernel chooses one.
	MAC wire.MAC
	// Alias is a text of up to 255 bytes that belongs to the interface. This project uses it to
	// name the owner.
	Alias string
	// Addrs are the end's addresses with their prefix lengths.
	Addrs []netip.Prefix
	// If NoTSO is true, the kernel splits TCP streams into packets of the MTU before they enter the
	// link. If it is false, longer frames of TCP can cross the link.
	NoTSO bool
}

// Connect makes a veth pair between two namespaces in one step: each end is in its namespace from
// the beginning. It configures both ends and brings them up. mtu is in bytes, without the Ethernet
// header. After an error no part of the pair is left.
func Connect(a, b End, mtu int) error {
	other, err := open(b.Netns)
	if err != nil {
		return err
	}
	defer other.Close() // needed only to name the namespace to the kernel
	err = Do(a.Netns, func() error {
		la := netlink.NewLinkAttrs()
		la.Name, la.MTU = a.Name, mtu
		if a.MAC != (wire.MAC{}) {
			la.HardwareAddr = a.MAC[:]
		}
		pair := netlink.NewVeth(la)
		pair.PeerName, pair.PeerMTU, pair.PeerNamespace = b.Name, uint32(mtu), netlink.NsFd(int(other))
		if b.MAC != (wire.MAC{}) {
			pair.PeerHardwareAddr = net.HardwareAddr(b.MAC[:])
		}
		if err := netlink.LinkAdd(pair); err != nil {
			return linkError(err, a.Name, b.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(Configure(a), Configure(b)); err != nil {
		return errors.Join(err, DeleteLink(a.Netns, a.Name))
	}
	return nil
}

// linkError explains the two most frequent reasons why the kernel refuses a pair.
func linkError(err error, a, b string) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		return opError(err, "make link %s - %s: an interface of that name is there already", a, b)
	case errors.Is(err, unix.EOPNOTSUPP):
		return opError(err, "make link %s - %s: this kernel has no veth (CONFIG_VETH, module veth)", a, b)
	}
	return opError(err, "make link %s - %s", a, b)
}

// Configure applies the alias, NoTSO and the addresses of e to the existing interface e.Name, and
// brings the interface up. It may be called again.
func Configure(e End) error {
	return Do(e.Netns, func() error {
		l, err := netlink.LinkByName(e.Name)
		if err != nil {
			return opError(err, "interface %s", e.Name)
		}
		if e.Alias != "" {
			if err := netlink.LinkSetAlias(l, e.Alias); err != nil {
				return opError(err, "interface %s: set alias", e.Name)
			}
		}
		if e.NoTSO {
			if err := setOffload(e.Name, unix.ETHTOOL_STSO, false); err != nil {
				return opError(err, "interface %s: switch segmentation offload off", e.Name)
			}
		}
		for _, p := range e.Addrs {
			if err := netlink.AddrReplace(l, addr(p)); err != nil {
				if p.Addr().Is6() && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)) {
					continue // the kernel has no IPv6
				}
				return opError(err, "interface %s: add address %v", e.Name, p)
			}
		}
		return opError(netlink.LinkSetUp(l), "interface %s: set up", e.Name)
	})
}

// addr converts p for netlink. An IPv6 address can be used at once, because duplicate address
// detection is off for it.
func addr(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// DeleteLink removes an interface, and with it the other end of a veth pair. It returns no error if
// there is no such interface.
func DeleteLink(netns, name string) error {
	return Do(netns, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			var missing netlink.LinkNotFoundError
			if errors.As(err, &missing) {
				return nil
			}
			return opError(err, "interface %s", name)
		}
		return opError(netlink.LinkDel(l), "interface %s: delete", name)
	})
}

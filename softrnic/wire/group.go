package wire

import "net/netip"

// GroupMAC returns the Ethernet address of a multicast group: 01:00:5e and the low 23 bits of an
// IPv4 address (RFC 1112, 6.4), 33:33 and the low 32 bits of an IPv6 address (RFC 2464, 7).
// Several groups have the same address.
func GroupMAC(group netip.Addr) MAC {
	if group.Is4() {
		a := group.As4()
		return MAC{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}
	}
	a := group.As16()
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// GroupFlooded reports whether a group stays on its link: 224.0.0.0/24, and IPv6 groups of link
// scope or smaller. Switches send frames to such a group to all ports (RFC 4541, 2.1.2), because
// protocols of the link itself use these groups, and not every host reports that it has joined
// them.
func GroupFlooded(group netip.Addr) bool {
	if group.Is4() {
		a := group.As4()
		return a[0] == 224 && a[1] == 0 && a[2] == 0
	}
	const scopeMask, linkLocal = 0x0f, 2
	return group.As16()[1]&scopeMask <= linkLocal
}

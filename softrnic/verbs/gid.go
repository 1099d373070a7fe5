package verbs

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// GID is a port's address: an IPv6 address, or an IPv4-mapped one.
type GID [16]byte

// GIDOf returns the GID of an IP address.
func GIDOf(a netip.Addr) GID { return GID(a.As16()) }

// Addr returns the address, IPv4 when it is mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String prints the address.
func (g GID) String() string { return g.Addr().String() }

// IsMulticast reports the address of a multicast group.
func (g GID) IsMulticast() bool { return g.Addr().IsMulticast() }

// MulticastQPN is the destination queue pair number of datagrams to a group (IBTA 10.5.2/qpn).
const MulticastQPN wire.QPN = 0xffffff

// eui64Flip is the bit of a MAC address that a modified EUI-64 identifier has the other way round
// (RFC 4291, appendix A).
const eui64Flip = 0x02

// LinkLocalGID is the link-local address that a port with this MAC address has (RFC 4291, 2.5.6):
// the GID that every port of a Linux NIC begins with.
func LinkLocalGID(m wire.MAC) GID {
	return GID{
		0: 0xfe, 1: 0x80, 8: m[0] ^ eui64Flip, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	}
}

// LinkLocalMAC is the MAC address inside of a link-local GID; false says that g has none.
func (g GID) LinkLocalMAC() (wire.MAC, bool) {
	m := wire.MAC{g[8] ^ eui64Flip, g[9], g[10], g[13], g[14], g[15]}
	return m, g == LinkLocalGID(m) && m[0]&1 == 0 // no group address
}

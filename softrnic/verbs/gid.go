package verbs

import (
	"encoding/binary"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// GID is a port's address: an IPv6 address, or an IPv4-mapped one.
type GID [16]byte

func GIDOf(a netip.Addr) GID { return GID(a.As16()) }

func GIDOf4(a [4]byte) GID { return GID{10: 0xff, 11: 0xff, 12: a[0], 13: a[1], 14: a[2], 15: a[3]} }

// Addr returns the IP address: for an IPv4-mapped address the IPv4 address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

func (g GID) String() string { return g.Addr().String() }

// IsZero reports whether g is no address, as in a free entry of a port's table.
func (g GID) IsZero() bool { return g == GID{} }

func (g GID) IsMulticast() bool { return g.Addr().IsMulticast() }

// MulticastQPN is the destination queue pair number of datagrams to a group (IBTA 10.5.2/qpn).
const MulticastQPN wire.QPN = 0xffffff

// eui64Flip is the bit that is inverted between a MAC address and its modified EUI-64 identifier
// (RFC 4291, appendix A).
const eui64Flip = 0x02

// LinkLocalGID returns the link-local address of a port with this MAC address (RFC 4291, 2.5.6):
// the first GID of every port of a Linux NIC.
func LinkLocalGID(m wire.MAC) GID {
	return GID{
		0: 0xfe, 1: 0x80, 8: m[0] ^ eui64Flip, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	}
}

// EUI64 returns the modified EUI-64 identifier of a MAC address. It identifies a NIC in management
// datagrams.
func EUI64(m wire.MAC) uint64 {
	g := LinkLocalGID(m)
	return binary.BigEndian.Uint64(g[8:])
}

// LinkLocalMAC returns the MAC address in a link-local GID; false if g has none.
func (g GID) LinkLocalMAC() (wire.MAC, bool) {
	m := wire.MAC{g[8] ^ eui64Flip, g[9], g[10], g[13], g[14], g[15]}
	return m, g == LinkLocalGID(m) && m[0]&1 == 0 // false if m is the address of a group
}

// SourceGID returns the index of the GID from which a NIC should send to peer. It is the first GID
// of peer's address family that is link-local if peer is link-local, and is not if peer is not. If
// there is no such GID, it is the first one of this family.
func SourceGID(gids []GID, peer netip.Addr) (index int, found bool) {
	for i, g := range gids {
		own := g.Addr()
		switch {
		case own.Is4() != peer.Unmap().Is4():
		case own.IsLinkLocalUnicast() == peer.IsLinkLocalUnicast():
			return i, true
		case !found:
			index, found = i, true
		}
	}
	return index, found
}

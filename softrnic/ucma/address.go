package ucma

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// spaces are the port spaces, with the type of queue pair that an identifier is for; 0: the type that the program
// names. Addresses in all of them are those of IP: native InfiniBand addresses cannot be bound, as librdmacm
// finds out when it starts.
var spaces = map[uint16]struct {
	number mad.ServiceID
	qpType uint8
}{spaceTCP: {mad.SpaceTCP, typeRC}, spaceUDP: {mad.SpaceUDP, typeUD}, spaceIB: {mad.SpaceIB, 0}}

// parse decodes a socket address. ok is false if a contains neither an IPv4 nor an IPv6 address:
// programs leave some arguments empty.
func (a address) parse() (p netip.AddrPort, ok bool) {
	port := binary.BigEndian.Uint16(a[2:])
	switch binary.NativeEndian.Uint16(a[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:])), port), true
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a[8:])).Unmap(), port), true
	}
	return p, false
}

// is4 reports whether the address is one of IPv4. An IPv6 address that stands for an IPv4 address is
// none, though parse returns that IPv4 address.
func (a address) is4() bool { return binary.NativeEndian.Uint16(a[:]) == unix.AF_INET }

// addressOf encodes a socket address; an invalid address as zeros.
func addressOf(p netip.AddrPort) (a address) {
	switch ip := p.Addr(); {
	case ip.Is4():
		binary.NativeEndian.PutUint16(a[:], unix.AF_INET)
		v4 := ip.As4()
		copy(a[4:], v4[:])
	case ip.Is6():
		binary.NativeEndian.PutUint16(a[:], unix.AF_INET6)
		v6 := ip.As16()
		copy(a[8:], v6[:])
	default:
		return a
	}
	binary.BigEndian.PutUint16(a[2:], p.Port())
	return a
}

// gidOf returns the index of address a in the NIC's table of GIDs. ok is false if a is not an
// address of the NIC.
func gidOf(table []verbs.GID, a netip.Addr) (index int, ok bool) {
	index = slices.IndexFunc(table, func(g verbs.GID) bool { return g.Addr() == a })
	return max(index, 0), index >= 0
}

// anyAddr reports whether an address stands for all addresses of the NIC: the unspecified address,
// and those of loopback, at which there is no RDMA (cma_any_addr of the kernel).
func anyAddr(a netip.Addr) bool { return a.IsUnspecified() || a.IsLoopback() }

// give binds an identifier (rdma_cm_id) to a port and to an address of the NIC, or to one that stands
// for all of them. The identifier keeps the address as it was given.
func (c *Config) give(x *id, a netip.AddrPort) error {
	if _, own := gidOf(c.Device.GIDs, a.Addr()); !own && !anyAddr(a.Addr()) {
		return unix.EADDRNOTAVAIL
	}
	return c.Ports.take(x, a, c.Rand.Uint32())
}

func (m *Manager) bind(_ call, x *id, a bindIP) (Result, error) {
	addr, ok := a.Addr.parse()
	if !ok || !x.may(onBind) {
		return Result{}, unix.EINVAL
	}
	if err := m.cfg.give(x, addr); err != nil {
		return Result{}, err
	}
	x.step(onBind)
	return Result{}, nil
}

// Values of fields that are the same in all paths that query returns.
const (
	exactly   = 2 // the selector of a field whose value is exact and not a bound
	rate25    = 15
	noIndex   = ^uint32(0)
	onlyPort  = 1
	hopLimit  = 64
	pathCount = 1
)

// query executes QueryRoute: it returns the addresses and the path of an identifier. Values that
// are not known yet are zero.
func (m *Manager) query(_ call, x *id, _ query) (Result, error) {
	r := route{Src: addressOf(x.src), Dst: addressOf(x.dst), Index: noIndex}
	if _, own := gidOf(m.cfg.Device.GIDs, x.src.Addr()); own || x.looped {
		gid := verbs.LinkLocalGID(m.cfg.Device.MAC)
		r.NodeGUID, r.Port = [8]byte(gid[8:]), onlyPort
		p := &r.Paths[0]
		p.SrcGID = verbs.GIDOf(x.src.Addr())
		binary.BigEndian.PutUint16(p.PKey[:], m.cfg.pkey(x.terms.pkeyIndex))
		if x.dst.IsValid() {
			p.DstGID = verbs.GIDOf(x.dst.Addr())
		}
		if x.terms.mtu != 0 {
			r.NumPaths = pathCount
			p.MTU, p.HopLimit, p.TrafficClass, p.Reversible, p.Paths = uint32(x.terms.mtu), hopLimit, x.options.tos, 1, pathCount
			p.MTUSelector, p.RateSel, p.LifeSel, p.Rate, p.LifeTime = exactly, exactly, exactly, rate25, x.terms.ackTimeout-1
		}
	}
	return Result{Data: encode(r)}, nil
}

// pkey returns an entry of the port's P_Key table, or the default P_Key if there is no such entry.
func (c *Config) pkey(index uint16) uint16 {
	if table := c.Device.PKeys; int(index) < len(table) {
		return table[index]
	}
	return wire.DefaultPKey
}

package ucma

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// spaces are the port spaces that are supported. Identifiers of other spaces can be made and
// destroyed: librdmacm makes one to find out whether native InfiniBand addresses can be bound.
var spaces = map[uint16]mad.ServiceID{spaceTCP: mad.SpaceTCP, spaceUDP: mad.SpaceUDP}

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
func (m *Manager) gidOf(a netip.Addr) (index int, ok bool) {
	index = slices.IndexFunc(m.cfg.Device.GIDs, func(g verbs.GID) bool { return g.Addr() == a })
	return max(index, 0), index >= 0
}

// anyAddr reports whether an address stands for all addresses of the NIC: the unspecified address,
// and those of loopback, at which there is no RDMA (cma_any_addr of the kernel).
func anyAddr(a netip.Addr) bool { return a.IsUnspecified() || a.IsLoopback() }

// give binds an identifier (rdma_cm_id) to a port and to an address of the NIC, or to one that stands
// for all of them. The identifier keeps the address as it was given.
func (m *Manager) give(x *id, a netip.AddrPort) error {
	if x.space == 0 {
		return unix.EINVAL
	}
	if _, own := m.gidOf(a.Addr()); !own && !anyAddr(a.Addr()) {
		return unix.EADDRNOTAVAIL
	}
	return m.cfg.Ports.take(x, a, m.cfg.Rand.Uint32())
}

func (m *Manager) bind(_ call, x *id, a bindIP) (Result, error) {
	addr, ok := a.Addr.parse()
	if !ok || !x.may(onBind) {
		return Result{}, unix.EINVAL
	}
	if err := m.give(x, addr); err != nil {
		return Result{}, err
	}
	x.step(onBind)
	return Result{}, nil
}

// resolve executes ResolveIP: it finds the NIC's address and the route for a peer.
func (m *Manager) resolve(c call, x *id, a resolveIP) (Result, error) {
	dst, ok := a.Dst.parse()
	if !ok || !x.may(onResolve) || x.space == 0 {
		return Result{}, unix.EINVAL
	}
	if err := mayTell(m.cfg.Quota); err != nil {
		return Result{}, err
	}
	if x.state == Fresh {
		src, ok := a.Src.parse()
		if !ok {
			src = netip.AddrPortFrom(allOf(dst.Addr()), 0)
		}
		if err := m.give(x, src); err != nil {
			return Result{}, err
		}
		x.step(onBind)
	}
	if mapped := dst.Addr().Is4() && !a.Dst.is4(); x.src.Addr().Is4() != dst.Addr().Is4() && !mapped {
		return Result{}, unix.EINVAL
	}
	if anyAddr(dst.Addr()) {
		return m.resolveLoopback(c, x, dst)
	}
	own, no := m.sourceOf(x, dst.Addr())
	switch {
	case no == unix.EINVAL:
		return Result{}, no
	case no == 0 && (c.NIC == nil || c.NIC.Route(own, dst.Addr()) != nil):
		no = unix.EHOSTUNREACH
	}
	if no != 0 {
		return m.notFound(x, no)
	}
	x.src = netip.AddrPortFrom(own, x.src.Port())
	return m.found(x, dst)
}

// sourceOf returns the address of the NIC from which an identifier sends to a peer. An identifier
// that is bound to a loopback address cannot leave this machine: the kernel's IPv4 refuses such a
// route at once (EINVAL), and for other peers it finds no device with that address.
func (m *Manager) sourceOf(x *id, peer netip.Addr) (own netip.Addr, no unix.Errno) {
	own = x.src.Addr()
	_, local := m.gidOf(peer)
	switch {
	case own.IsLoopback() && own.Is4() && !local:
		return own, unix.EINVAL
	case own.IsLoopback():
		return own, unix.ENODEV
	case !own.IsUnspecified():
		return own, 0
	}
	i, ok := verbs.SourceGID(m.cfg.Device.GIDs, peer)
	if !ok {
		return own, unix.EHOSTUNREACH
	}
	return m.cfg.Device.GIDs[i].Addr(), 0
}

// resolveLoopback resolves a peer that stands for all addresses. As in the kernel
// (cma_resolve_loopback), this finds the device: an identifier that has none yet is then bound to the
// loopback address. There is no route between such addresses over RoCE: see resolveRoute.
func (m *Manager) resolveLoopback(c call, x *id, dst netip.AddrPort) (Result, error) {
	if c.NIC == nil {
		return Result{}, unix.ENODEV
	}
	if anyAddr(x.src.Addr()) {
		x.src = netip.AddrPortFrom(loopbackOf(dst.Addr()), x.src.Port())
	}
	x.looped = true
	return m.found(x, dst)
}

// loopbackOf returns the loopback address of the family of a.
func loopbackOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// found tells the program that the peer's address is resolved.
func (m *Manager) found(x *id, dst netip.AddrPort) (Result, error) {
	x.dst = dst
	x.step(onResolve)
	m.tell(x, addrResolved, 0, nil)
	return Result{}, nil
}

// notFound tells the program that the peer's address cannot be resolved. The identifier stays bound,
// so the program may try again.
func (m *Manager) notFound(x *id, why unix.Errno) (Result, error) {
	if x.channel.full(x) {
		return Result{}, unix.ENOMEM
	}
	m.tell(x, addrError, -int32(why), nil)
	return Result{}, nil
}

// allOf returns the unspecified address of the family of a.
func allOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func (m *Manager) resolveRoute(_ call, x *id, _ resolveRoute) (Result, error) {
	switch {
	case !x.may(onRoute):
		return Result{}, unix.EINVAL
	case x.looped: // no interface belongs to the addresses: cma_iboe_set_path_rec_l2_fields
		return Result{}, unix.ENODEV
	}
	if err := mayTell(m.cfg.Quota); err != nil {
		return Result{}, err
	}
	x.step(onRoute)
	x.terms.mtu, x.terms.ackTimeout = cm.MTUCode(m.cfg.Device.ActiveMTU), x.options.timeout()
	m.tell(x, routeResolved, 0, nil)
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
	if _, own := m.gidOf(x.src.Addr()); own || x.looped {
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

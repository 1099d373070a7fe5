package ucma

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// resolve executes ResolveIP: it finds the NIC's address and the route for a peer.
func (m *Manager) resolve(c call, x *id, a resolveIP) (Result, error) {
	dst, ok := a.Dst.parse()
	if !ok || !x.may(onResolve) {
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
		if err := m.cfg.give(x, src); err != nil {
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
	own, no := x.sourceFor(dst.Addr(), m.cfg.Device.GIDs)
	switch {
	case no == unix.EINVAL:
		return Result{}, no
	case no == 0 && (c.NIC == nil || c.NIC.Route(own, dst.Addr()) != nil):
		no = unix.EHOSTUNREACH
	}
	if no != 0 { // the identifier stays bound, so the program may try again
		if x.channel.full(x) {
			return Result{}, unix.ENOMEM
		}
		m.cfg.tell(x, addrError, -int32(no), nil)
		return Result{}, nil
	}
	x.src = netip.AddrPortFrom(own, x.src.Port())
	return m.found(x, dst)
}

// sourceFor returns the address from which the identifier sends to a peer; gids are the addresses of
// the NIC. An identifier that is bound to a loopback address cannot leave this machine: the kernel's
// IPv4 refuses such a route at once (EINVAL), and for other peers it finds no device with that address.
func (x *id) sourceFor(peer netip.Addr, gids []verbs.GID) (own netip.Addr, no unix.Errno) {
	own = x.src.Addr()
	_, local := gidOf(gids, peer)
	switch {
	case own.IsLoopback() && own.Is4() && !local:
		return own, unix.EINVAL
	case own.IsLoopback():
		return own, unix.ENODEV
	case !own.IsUnspecified():
		return own, 0
	}
	i, ok := verbs.SourceGID(gids, peer)
	if !ok {
		return own, unix.EHOSTUNREACH
	}
	return gids[i].Addr(), 0
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
	m.cfg.tell(x, addrResolved, 0, nil)
	return Result{}, nil
}

// allOf returns the unspecified address of the family of a.
func allOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// resolveRoute executes ResolveRoute.
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
	m.cfg.tell(x, routeResolved, 0, nil)
	return Result{}, nil
}

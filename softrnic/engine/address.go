package engine

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The largest number of header and trailer bytes of an IP packet: IP, UDP 8, BTH 12, RETH 16,
// immediate data 4, ICRC 4.
const (
	ipv4Overhead = 20 + 44
	ipv6Overhead = 40 + 44
	udpPortBase  = 0xc000 // the lowest UDP source port
)

// port is the NIC's port: its state, its addresses, and the routes to other addresses.
type port struct {
	cfg      *Config
	linkDown bool
	disabled bool
	// shrunk is true once the MTU has fallen: then the packets of connected queue pairs may not fit.
	shrunk bool
}

// LinkUp returns whether the port has a carrier, as last set by SetLink. A new NIC has one.
func (p *port) LinkUp() bool { return !p.linkDown }

// SetEnabled sets whether the port's interface is switched on. Without that it has no carrier either,
// which SetLink says.
func (p *port) SetEnabled(on bool) { p.disabled = !on }

// SetMTU sets the largest IP packet of the link in bytes. Queue pairs that are connected keep their
// path MTU; packets that no longer fit are lost, and their senders end with retries exceeded.
func (p *port) SetMTU(bytes int) {
	p.shrunk = p.shrunk || bytes < p.cfg.LinkMTU
	p.cfg.LinkMTU = bytes
}

// holds reports whether the frame f with packet k fits the link.
func (p *port) holds(f *wire.Frame, k *wire.Packet) bool {
	return !p.shrunk || f.LenWith(k)-f.Eth.Len() <= p.cfg.LinkMTU
}

// route is the resolved path to a peer: all headers in front of the BTH, ready to be copied.
type route struct {
	eth  wire.Ethernet
	v6   bool
	ipv4 wire.IPv4
	ipv6 wire.IPv6
	udp  wire.UDP
	// local is set if the peer is this NIC itself: packets to it never reach the link. group is set
	// if the destination is a multicast group: packets go to the link, and a copy goes to this NIC.
	local, group bool
}

// sourcePort returns the UDP source port of packets between two queue pairs: a hash of both
// numbers. It is the same in both directions, so that ECMP keeps a connection on one path (A17.3.1;
// Linux has the same hash).
func sourcePort(a, b wire.QPN) uint16 {
	v := uint64(a) * uint64(b)
	v ^= v >> 20
	v ^= v >> 40
	return labelPort(uint32(v & maxLabel))
}

// maxLabel is the largest flow label.
const maxLabel = 1<<20 - 1

// labelPort returns the UDP source port for a flow label (A17.3.1/label; folded as in Linux).
func labelPort(label uint32) uint16 { return udpPortBase | (uint16(label&0x3fff) ^ uint16(label>>14)) }

// routeTo resolves the address a for packets with up to mtu bytes of payload. If a has no flow
// label, routeTo leaves the UDP source port 0, and the caller sets it.
func (p *port) routeTo(op string, a verbs.AHAttr, mtu verbs.MTU) (route, error) {
	if a.SourceGID < 0 || a.SourceGID >= len(p.cfg.GIDs) {
		return route{}, verbs.Errorf(op, verbs.ErrInvalid, "source GID index %d; the port has %d", a.SourceGID, len(p.cfg.GIDs))
	}
	if p.cfg.GIDs[a.SourceGID].IsZero() {
		return route{}, verbs.Errorf(op, verbs.ErrInvalid, "source GID index %d is a free entry of the port's table", a.SourceGID)
	}
	src, dst := p.cfg.GIDs[a.SourceGID].Addr(), a.DestGID.Addr()
	if src.Is4() != dst.Is4() {
		return route{}, verbs.Errorf(op, verbs.ErrInvalid, "source GID %v and destination GID %v are of different families", src, dst)
	}
	if a.FlowLabel > maxLabel {
		return route{}, verbs.Errorf(op, verbs.ErrInvalid, "flow label %#x has more than 20 bits", a.FlowLabel)
	}
	overhead := ipv4Overhead
	if dst.Is6() {
		overhead = ipv6Overhead
	}
	if int(mtu)+overhead > p.cfg.LinkMTU {
		return route{}, verbs.Errorf(op, verbs.ErrInvalid, "path MTU %d needs a link MTU of %d, it is %d; use a smaller path MTU",
			mtu, int(mtu)+overhead, p.cfg.LinkMTU)
	}
	r := route{v6: dst.Is6(), local: p.isMine(a.DestGID), group: dst.IsMulticast()}
	mac, ok := p.cfg.MAC, r.local
	switch {
	case r.group:
		mac, ok = wire.GroupMAC(dst), true
	case !ok:
		mac, ok = p.neighbour(a.DestGID)
	}
	if !ok {
		return route{}, verbs.Errorf(op, verbs.ErrUnreachable, "no neighbour has the address %v", dst)
	}
	hops := cmp.Or(a.HopLimit, transport.DefaultHopLimit)
	class := cmp.Or(a.TrafficClass, p.cfg.TOS)
	if p.cfg.Congestion != nil {
		class = class&^3 | uint8(wire.ECT0)
	}
	r.eth = wire.Ethernet{Dst: mac, Src: p.cfg.MAC}
	r.udp = wire.UDP{DstPort: wire.UDPPort}
	if a.FlowLabel != 0 {
		r.udp.SrcPort = labelPort(a.FlowLabel)
	}
	if r.v6 {
		r.ipv6 = wire.IPv6{TrafficClass: class, FlowLabel: a.FlowLabel, NextHeader: wire.ProtocolUDP, HopLimit: hops, Src: src.As16(), Dst: dst.As16()}
	} else {
		r.ipv4 = wire.IPv4{TOS: class, DF: true, TTL: hops, Protocol: wire.ProtocolUDP, Src: src.As4(), Dst: dst.As4()}
	}
	return r, nil
}

// neighbour returns the MAC address of a neighbour on the link. If Resolve does not know a
// link-local address, neighbour derives the MAC address from it.
func (p *port) neighbour(g verbs.GID) (wire.MAC, bool) {
	if mac, ok := p.cfg.Resolve(g.Addr()); ok {
		return mac, true
	}
	return g.LinkLocalMAC()
}

// isMine reports whether g is an address of the port. A free entry of the table is none.
func (p *port) isMine(g verbs.GID) bool { return !g.IsZero() && slices.Contains(p.cfg.GIDs, g) }

func destGID(f *wire.Frame) verbs.GID {
	if f.V6 {
		return f.IPv6.Dst
	}
	return verbs.GIDOf4(f.IPv4.Dst)
}

// fromPeer reports whether f came from r's peer to r's own address.
func (r *route) fromPeer(f *wire.Frame) bool {
	if r.v6 != f.V6 {
		return false
	}
	if r.v6 {
		return f.IPv6.Src == r.ipv6.Dst && f.IPv6.Dst == r.ipv6.Src
	}
	return f.IPv4.Src == r.ipv4.Dst && f.IPv4.Dst == r.ipv4.Src
}

// activeMTU returns the largest path MTU with which packets over IPv6 fit the link. If none fits,
// it is 256.
func (p *port) activeMTU() verbs.MTU {
	for _, m := range []verbs.MTU{verbs.MTU4096, verbs.MTU2048, verbs.MTU1024, verbs.MTU512} {
		if int(m)+ipv6Overhead <= p.cfg.LinkMTU {
			return m
		}
	}
	return verbs.MTU256
}

// pathTo returns the attributes of an address handle for datagrams from address `local` to address
// `remote`. If `local` is not an address of the NIC, SourceGID is -1, which is invalid.
func (p *port) pathTo(local, remote netip.Addr) verbs.AHAttr {
	a := verbs.AHAttr{DestGID: verbs.GIDOf(remote), SourceGID: -1}
	for i, g := range p.cfg.GIDs {
		if !g.IsZero() && g.Addr() == local {
			a.SourceGID = i
		}
	}
	return a
}

// isMyMAC inspects the destination MAC address of frame b. `mine` says that it is the NIC's address
// or a multicast address, and `other` says that it is the unicast address of another NIC. Both are
// false if b is too short.
func (p *port) isMyMAC(b []byte) (mine, other bool) {
	if len(b) < 6 {
		return false, false
	}
	mine = wire.MAC(b[:6]) == p.cfg.MAC || b[0]&1 != 0
	return mine, !mine
}

// checkPKey refuses a P_Key that is not in the port's table. It is called for P_Keys in management
// datagrams.
func (p *port) checkPKey(op string, pkey uint16) error {
	if !slices.Contains(p.cfg.PKeys, pkey) {
		return verbs.Errorf(op, verbs.ErrInvalid, "P_Key %#x is not one of the port's: %#x", pkey, p.cfg.PKeys)
	}
	return nil
}

// checkPKeyIndex refuses an index that the port's table does not have.
func (p *port) checkPKeyIndex(op string, i int) error {
	if n := len(p.cfg.PKeys); i < 0 || i >= n {
		return verbs.Errorf(op, verbs.ErrInvalid, "P_Key index %d; the port has %d", i, n)
	}
	return nil
}

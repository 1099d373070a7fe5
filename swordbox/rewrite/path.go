package rewrite

import "github.com/rdmalab/rdmalab/softrnic/wire"

// ttl is the time to live, or hop limit, of packets that the switch makes or moves.
const ttl = 64

// Bits of the IP type of service (RFC 3168).
const (
	ecnMask = 0x03
	ecnCE   = 0x03 // a router was congested
	ecnECT0 = 0x02 // the ends understand marks
)

// Path is one direction of a connection: the headers that lead a packet to its receiver. It is learnt from a packet
// (PathOf) or put together by whoever makes a connection.
type Path struct {
	Eth  wire.Ethernet
	V6   bool
	IPv4 wire.IPv4
	IPv6 wire.IPv6
	// SrcPort is the UDP source port, which spreads flows and names nothing.
	SrcPort uint16
	PKey    uint16
	MigReq  bool
	// DestQP is the receiver's queue pair.
	DestQP wire.QPN
}

// PathOf is the path that a packet took. A congestion mark is not part of it.
func PathOf(f *wire.Frame) Path {
	p := Path{
		Eth: f.Eth, V6: f.V6, IPv4: f.IPv4, IPv6: f.IPv6,
		SrcPort: f.UDP.SrcPort, PKey: f.BTH.PKey, MigReq: f.BTH.MigReq, DestQP: f.BTH.DestQP,
	}
	if class := p.class(); class&ecnMask == ecnCE {
		p.setClass(class&^ecnMask | ecnECT0)
	}
	return p
}

// Back is the path the other way, to the sender's queue pair. It is a guess of what the receiver sends with, good
// until a packet of it has been seen.
func (p *Path) Back(destQP wire.QPN) Path {
	q := *p
	q.Eth.Dst, q.Eth.Src = p.Eth.Src, p.Eth.Dst
	q.IPv4.Dst, q.IPv4.Src = p.IPv4.Src, p.IPv4.Dst
	q.IPv6.Dst, q.IPv6.Src = p.IPv6.Src, p.IPv6.Dst
	q.DestQP = destQP
	return q
}

// Apply puts a packet on the path: addresses, tag, UDP source port, P_Key and queue pair are those of the path, the
// IPv4 identification is 0 with "don't fragment" set, the time to live starts anew. DSCP and ECN stay those of the
// packet. The PSN is the caller's to change.
func (p *Path) Apply(f *wire.Frame) {
	class := class(f)
	p.headers(f)
	if f.V6 {
		f.IPv6.TrafficClass = class
	} else {
		f.IPv4.TOS = class
	}
	f.BTH.PKey, f.BTH.MigReq, f.BTH.DestQP = p.PKey, p.MigReq, p.DestQP
}

// headers sets everything below the BTH.
func (p *Path) headers(f *wire.Frame) {
	f.Eth, f.V6 = p.Eth, p.V6
	if p.V6 {
		f.IPv4, f.IPv6 = wire.IPv4{}, p.IPv6
		f.IPv6.HopLimit = ttl
	} else {
		f.IPv6, f.IPv4 = wire.IPv6{}, p.IPv4
		f.IPv4.ID, f.IPv4.Reserved, f.IPv4.DF, f.IPv4.TTL = 0, false, true, ttl
	}
	f.UDP = wire.UDP{SrcPort: p.SrcPort, DstPort: wire.UDPPort}
}

// class is DSCP and ECN of a packet.
func class(f *wire.Frame) uint8 {
	if f.V6 {
		return f.IPv6.TrafficClass
	}
	return f.IPv4.TOS
}

func (p *Path) class() uint8 {
	if p.V6 {
		return p.IPv6.TrafficClass
	}
	return p.IPv4.TOS
}

func (p *Path) setClass(c uint8) {
	if p.V6 {
		p.IPv6.TrafficClass = c
	} else {
		p.IPv4.TOS = c
	}
}

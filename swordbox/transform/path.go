package transform

import "github.com/rdmalab/rdmalab/softrnic/wire"

// ttl is the time to live, or hop limit, of packets that the switch makes or moves.
const ttl = 64

// Bits of the IP type of service (RFC 3168).
const (
	ecnMask = 0x03
	ecnCE   = 0x03 // congestion experienced
	ecnECT0 = 0x02 // ECN-capable transport
)

// Path holds the headers that bring a packet of one direction of a connection to its receiver.
// PathOf takes them from a packet or, for a switch's connection, from switchconn.Shared.To.
type Path struct {
	Eth  wire.Ethernet
	V6   bool
	IPv4 wire.IPv4
	IPv6 wire.IPv6
	// SrcPort is the UDP source port. It spreads flows over links and does not name the connection.
	SrcPort uint16
	PKey    uint16
	MigReq  bool
	// DestQP is the receiver's queue pair.
	DestQP wire.QPN
}

// PathOf returns the path of a packet. It leaves out a congestion mark in the IP header.
func PathOf(f *wire.Frame) Path {
	p := Path{
		Eth: f.Eth, V6: f.V6, IPv4: f.IPv4, IPv6: f.IPv6,
		SrcPort: f.UDP.SrcPort, PKey: f.BTH.PKey, MigReq: f.BTH.MigReq, DestQP: f.BTH.DestQP,
	}
	if class := class(p.V6, &p.IPv6, &p.IPv4); class&ecnMask == ecnCE {
		p.setClass(class&^ecnMask | ecnECT0)
	}
	return p
}

// Back returns the path in the other direction, to the sender's queue pair destQP. Its headers are
// a guess: the receiver may send with others, for example another UDP source port. So a caller that
// has seen a packet of the receiver uses the path of that packet instead.
func (p *Path) Back(destQP wire.QPN) Path {
	q := *p
	q.Eth.Dst, q.Eth.Src = p.Eth.Src, p.Eth.Dst
	q.IPv4.Dst, q.IPv4.Src = p.IPv4.Src, p.IPv4.Dst
	q.IPv6.Dst, q.IPv6.Src = p.IPv6.Src, p.IPv6.Dst
	q.DestQP = destQP
	return q
}

// Apply puts a packet on the path. Addresses, tag, UDP source port, P_Key and queue pair become
// those of the path; "don't fragment" is set, and the time to live becomes that of a new packet.
// DSCP and ECN stay those of the packet. psn becomes the PSN.
func (p *Path) Apply(f *wire.Frame, psn wire.PSN) {
	class := class(f.V6, &f.IPv6, &f.IPv4)
	p.headers(f, psn)
	if f.V6 {
		f.IPv6.TrafficClass = class
	} else {
		f.IPv4.TOS = class
	}
	f.BTH.PKey, f.BTH.MigReq, f.BTH.DestQP, f.BTH.PSN = p.PKey, p.MigReq, p.DestQP, psn
}

// headers sets all headers below the BTH, for a packet with a PSN. The IPv4 identification of
// consecutive packets counts up, because only then the link sends them as one super-frame
// (packetio.FirstRun).
func (p *Path) headers(f *wire.Frame, psn wire.PSN) {
	f.Eth, f.V6 = p.Eth, p.V6
	if p.V6 {
		f.IPv4, f.IPv6 = wire.IPv4{}, p.IPv6
		f.IPv6.HopLimit = ttl
	} else {
		f.IPv6, f.IPv4 = wire.IPv6{}, p.IPv4
		f.IPv4.ID, f.IPv4.Reserved, f.IPv4.DF, f.IPv4.TTL = uint16(psn), false, true, ttl
	}
	f.UDP = wire.UDP{SrcPort: p.SrcPort, DstPort: wire.UDPPort}
}

// class returns DSCP and ECN of a packet or path: those of its IPv6 header if v6 is true, otherwise
// those of its IPv4 header.
func class(v6 bool, ip6 *wire.IPv6, ip4 *wire.IPv4) uint8 {
	if v6 {
		return ip6.TrafficClass
	}
	return ip4.TOS
}

func (p *Path) setClass(c uint8) {
	if p.V6 {
		p.IPv6.TrafficClass = c
	} else {
		p.IPv4.TOS = c
	}
}

// Request moves a request to another connection: it sets the path and the PSN of that connection.
// It also requests an acknowledgement, because otherwise the switch would not learn that the
// request was executed.
func Request(f *wire.Frame, to *Path, psn wire.PSN) {
	to.Apply(f, psn)
	f.BTH.AckReq = true
}

// Response redirects a response (an acknowledgement, the response to an atomic, or a packet of a
// READ response) to the requester at the end of path `to`. psn is the requester's PSN. msn is the
// number of messages that the requester's connection has completed; a READ response packet without
// an AETH does not carry it.
func Response(f *wire.Frame, to *Path, psn wire.PSN, msn uint32) {
	to.Apply(f, psn)
	if f.BTH.Opcode.Has(wire.HasAETH) {
		f.AETH.MSN = msn & msnMask
	}
}

// Renumber changes the PSN of a packet that keeps its connection. It also clears the UDP checksum.
func Renumber(f *wire.Frame, psn wire.PSN) {
	f.BTH.PSN = psn
	f.UDP.Checksum = 0
}

// msnMask keeps the 24 bits of a message sequence number.
const msnMask = 1<<24 - 1

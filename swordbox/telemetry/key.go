package telemetry

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// By says which headers of a frame make its key.
type By uint8

// The zero value is ByFlow.
const (
	// ByFlow: addresses, protocol and ports.
	ByFlow By = iota
	// ByPair: both addresses. BySource, ByDestination: one of them.
	ByPair
	BySource
	ByDestination
	// ByService: protocol and destination port.
	ByService
	// ByProtocol: the protocol alone.
	ByProtocol
)

// Names lists the names of the values of By, in their order.
var Names = []string{"flow", "pair", "source", "destination", "service", "protocol"}

func (b By) String() string { return Names[b] }

// Key is what is counted: some headers of a frame. Those that By leaves out are zero.
type Key struct {
	// Type is the EtherType of the frame, behind a VLAN tag. Proto is the protocol of an IP packet,
	// or the next header of IPv6.
	Type  uint16 `json:"type"`
	Proto uint8  `json:"proto,omitempty"`
	// Src and Dst are the addresses of an IP packet; ByPair and ByFlow have both.
	Src netip.Addr `json:"src,omitzero"`
	Dst netip.Addr `json:"dst,omitzero"`
	// SrcPort and DstPort are the ports of TCP or UDP. A later fragment of a packet has none.
	SrcPort uint16 `json:"srcPort,omitempty"`
	DstPort uint16 `json:"dstPort,omitempty"`
}

// Lengths and numbers of the headers that Parse reads.
const (
	ethLen   = 14
	tagLen   = 4
	ip4Len   = 20
	ip6Len   = 40
	protoTCP = 6
	protoUDP = 17
)

// Parse returns the key of frame b. A frame without a complete IP header has its EtherType as key.
func Parse(b []byte, by By) (k Key) {
	be := binary.BigEndian
	if len(b) < ethLen {
		return k
	}
	at := ethLen
	if k.Type = be.Uint16(b[12:]); k.Type == wire.EtherTypeVLAN && len(b) >= ethLen+tagLen {
		at, k.Type = ethLen+tagLen, be.Uint16(b[16:])
	}
	ip, l4 := b[at:], []byte(nil)
	switch {
	case k.Type == wire.EtherTypeIPv4 && len(ip) >= ip4Len && ip[0]>>4 == 4 && int(ip[0]&0xf)*4 >= ip4Len && len(ip) >= int(ip[0]&0xf)*4:
		k.Proto = ip[9]
		k.Src, k.Dst = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		if be.Uint16(ip[6:])&0x1fff == 0 { // a fragment with an offset has no transport header
			l4 = ip[int(ip[0]&0xf)*4:]
		}
	case k.Type == wire.EtherTypeIPv6 && len(ip) >= ip6Len && ip[0]>>4 == 6:
		k.Proto, l4 = ip[6], ip[ip6Len:]
		k.Src, k.Dst = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	}
	if (k.Proto == protoTCP || k.Proto == protoUDP) && len(l4) >= 4 {
		k.SrcPort, k.DstPort = be.Uint16(l4), be.Uint16(l4[2:])
	}
	return k.reduce(by)
}

// reduce returns the key without the headers that `by` leaves out.
func (k *Key) reduce(by By) Key {
	none := netip.Addr{}
	r := *k
	switch by {
	case ByFlow:
	case ByPair:
		r.Proto, r.SrcPort, r.DstPort = 0, 0, 0
	case BySource:
		r.Proto, r.SrcPort, r.DstPort, r.Dst = 0, 0, 0, none
	case ByDestination:
		r.Proto, r.SrcPort, r.DstPort, r.Src = 0, 0, 0, none
	case ByService:
		r.SrcPort, r.Src, r.Dst = 0, none, none
	case ByProtocol:
		r.SrcPort, r.DstPort, r.Src, r.Dst = 0, 0, none, none
	}
	return r
}

// Hash returns a hash of the key.
func (k *Key) Hash() uint64 {
	h := mix(uint64(k.Type)<<48 | uint64(k.Proto)<<40 | uint64(k.SrcPort)<<16 | uint64(k.DstPort))
	for _, a := range [...]netip.Addr{k.Src, k.Dst} {
		if !a.IsValid() {
			h = mix(h)
			continue
		}
		b := a.As16()
		h = mix(h ^ binary.BigEndian.Uint64(b[:8]))
		h = mix(h ^ binary.BigEndian.Uint64(b[8:]))
	}
	return h
}

// mix is the step of splitmix64 (Steele, Lea and Flood, 2014): a bijection that spreads its bits.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// protocols are the names of the protocols that Text writes as words.
var protocols = map[uint8]string{1: "icmp", protoTCP: "tcp", protoUDP: "udp", 58: "icmpv6"}

// Text returns the key as text: "10.0.0.1:5000 > 10.0.0.2:4791 udp". host returns the name to
// print for an address.
func (k *Key) Text(host func(netip.Addr) string) string {
	if !k.Src.IsValid() && !k.Dst.IsValid() && k.Proto == 0 {
		return typeText(k.Type)
	}
	proto := protocols[k.Proto]
	if proto == "" {
		proto = fmt.Sprintf("protocol %d", k.Proto)
	}
	end := func(a netip.Addr, port uint16) string {
		name := "any"
		if a.IsValid() {
			name = host(a)
		}
		if port != 0 {
			return fmt.Sprintf("%s:%d", name, port)
		}
		return name
	}
	switch {
	case !k.Src.IsValid() && !k.Dst.IsValid() && k.DstPort != 0:
		return fmt.Sprintf("%s port %d", proto, k.DstPort)
	case !k.Src.IsValid() && !k.Dst.IsValid():
		return proto
	case k.Proto == 0:
		return end(k.Src, 0) + " > " + end(k.Dst, 0)
	}
	return end(k.Src, k.SrcPort) + " > " + end(k.Dst, k.DstPort) + " " + proto
}

func typeText(t uint16) string {
	switch t {
	case 0x0806:
		return "arp"
	case wire.EtherTypeIPv4:
		return "ipv4"
	case wire.EtherTypeIPv6:
		return "ipv6"
	}
	return fmt.Sprintf("ethertype %#04x", t)
}

package dissect

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
)

// Base has the bytes of a layer, and those behind it.
type Base struct{ Contents, Payload []byte }

func (b *Base) LayerContents() []byte { return b.Contents }
func (b *Base) LayerPayload() []byte  { return b.Payload }

// Lengths of headers in bytes; that of an IPv4 header is the least.
const (
	ethernetLength = 14
	tagLength      = 4
	ipv4Length     = 20
	ipv6Length     = 40
	udpLength      = 8
)

// LayerTypeEthernet is where the decoding of a frame begins. Behind it come only the layers of this
// package, and those that Register has added.
var (
	LayerTypeEthernet = register(4810, "Ethernet of RoCE", gopacket.DecodeFunc(decodeEthernet))
	LayerTypeTag      = register(4811, "VLAN tag of RoCE", gopacket.DecodeFunc(decodeTag))
	LayerTypeIPv4     = register(4812, "IPv4 of RoCE", gopacket.DecodeFunc(decodeIPv4))
	LayerTypeIPv6     = register(4813, "IPv6 of RoCE", gopacket.DecodeFunc(decodeIPv6))
	LayerTypeUDP      = register(4814, "UDP of RoCE", gopacket.DecodeFunc(decodeUDP))
)

// behind has the layers behind UDP, by the destination port.
var behind = map[uint16]gopacket.LayerType{Port: LayerTypeBTH}

// Register makes t the layer behind UDP packets to a port. It is called by init functions.
func Register(port uint16, t gopacket.LayerType) { behind[port] = t }

// Ethernet is the header of a frame. Type is that of the bytes behind it.
type Ethernet struct {
	Base
	Dst, Src [6]byte
	Type     uint16
}

func (h *Ethernet) LayerType() gopacket.LayerType { return LayerTypeEthernet }

// Tag is a VLAN tag (IEEE 802.1Q). Type is that of the bytes behind it.
type Tag struct {
	Base
	TCI, Type uint16
}

func (h *Tag) LayerType() gopacket.LayerType { return LayerTypeTag }

func decodeEthernet(data []byte, p gopacket.PacketBuilder) error {
	if err := take(data, ethernetLength, "Ethernet", p); err != nil {
		return err
	}
	h := &Ethernet{Base: Base{data[:ethernetLength], data[ethernetLength:]}, Dst: [6]byte(data), Src: [6]byte(data[6:]), Type: binary.BigEndian.Uint16(data[12:])}
	p.AddLayer(h)
	if h.Type == 0x8100 {
		return p.NextDecoder(LayerTypeTag)
	}
	return p.NextDecoder(typed(h.Type))
}

func decodeTag(data []byte, p gopacket.PacketBuilder) error {
	if err := take(data, tagLength, "VLAN tag", p); err != nil {
		return err
	}
	h := &Tag{Base: Base{data[:tagLength], data[tagLength:]}, TCI: binary.BigEndian.Uint16(data), Type: binary.BigEndian.Uint16(data[2:])}
	p.AddLayer(h)
	return p.NextDecoder(typed(h.Type))
}

// typed returns the layer that an EtherType names; behind a tag comes no other one.
func typed(t uint16) gopacket.LayerType {
	switch t {
	case 0x0800:
		return LayerTypeIPv4
	case 0x86dd:
		return LayerTypeIPv6
	}
	return gopacket.LayerTypePayload
}

// IPv4 is a header of IPv4 (RFC 791).
type IPv4 struct {
	Base
	TOS          uint8
	Length, ID   uint16
	Reserved, DF bool
	TTL          uint8
	Protocol     uint8
	Src, Dst     [4]byte
}

func (h *IPv4) LayerType() gopacket.LayerType { return LayerTypeIPv4 }

// NetworkFlow returns no flow: addresses are Src and Dst.
func (h *IPv4) NetworkFlow() gopacket.Flow { return gopacket.Flow{} }

func decodeIPv4(data []byte, p gopacket.PacketBuilder) error {
	if err := take(data, ipv4Length, "IPv4", p); err != nil {
		return err
	}
	h := &IPv4{
		TOS: data[1], Length: binary.BigEndian.Uint16(data[2:]), ID: binary.BigEndian.Uint16(data[4:]), Reserved: data[6]>>7 == 1, DF: data[6]>>6&1 == 1,
		TTL: data[8], Protocol: data[9], Src: [4]byte(data[12:]), Dst: [4]byte(data[16:]),
	}
	header, all := 4*int(data[0]&15), int(h.Length)
	switch {
	case header < ipv4Length || all < header:
		return fmt.Errorf("an IPv4 header of %d bytes in a packet of %d", header, all)
	case all > len(data):
		p.SetTruncated()
		all = len(data)
	}
	if header > all {
		return fmt.Errorf("an IPv4 header of %d bytes, of which %d are left", header, all)
	}
	h.Base = Base{data[:header], data[header:all]}
	p.AddLayer(h)
	p.SetNetworkLayer(h)
	if later := binary.BigEndian.Uint16(data[6:]) & 0x1fff; later != 0 { // a fragment, but not the first
		return p.NextDecoder(gopacket.LayerTypePayload)
	}
	return p.NextDecoder(numbered(h.Protocol))
}

// numbered returns the layer that a protocol number names.
func numbered(protocol uint8) gopacket.LayerType {
	if protocol == 17 {
		return LayerTypeUDP
	}
	return gopacket.LayerTypePayload
}

// IPv6 is a header of IPv6 (RFC 8200). Extension headers are payload.
type IPv6 struct {
	Base
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	Length       uint16
	NextHeader   uint8
	HopLimit     uint8
	Src, Dst     [16]byte
}

func (h *IPv6) LayerType() gopacket.LayerType { return LayerTypeIPv6 }

// NetworkFlow returns no flow: addresses are Src and Dst.
func (h *IPv6) NetworkFlow() gopacket.Flow { return gopacket.Flow{} }

func decodeIPv6(data []byte, p gopacket.PacketBuilder) error {
	if err := take(data, ipv6Length, "IPv6", p); err != nil {
		return err
	}
	first := binary.BigEndian.Uint32(data)
	h := &IPv6{
		TrafficClass: uint8(first >> 20), FlowLabel: first & 0xfffff, Length: binary.BigEndian.Uint16(data[4:]), NextHeader: data[6], HopLimit: data[7],
		Src: [16]byte(data[8:]), Dst: [16]byte(data[24:]),
	}
	all := ipv6Length + int(h.Length)
	if all > len(data) {
		p.SetTruncated()
		all = len(data)
	}
	h.Base = Base{data[:ipv6Length], data[ipv6Length:all]}
	p.AddLayer(h)
	p.SetNetworkLayer(h)
	return p.NextDecoder(numbered(h.NextHeader))
}

// UDP is a header of UDP (RFC 768).
type UDP struct {
	Base
	SrcPort, DstPort, Length, Checksum uint16
}

func (h *UDP) LayerType() gopacket.LayerType { return LayerTypeUDP }

// TransportFlow returns no flow: the ports are SrcPort and DstPort.
func (h *UDP) TransportFlow() gopacket.Flow { return gopacket.Flow{} }

func decodeUDP(data []byte, p gopacket.PacketBuilder) error {
	if err := take(data, udpLength, "UDP", p); err != nil {
		return err
	}
	word := func(i int) uint16 { return binary.BigEndian.Uint16(data[2*i:]) }
	h := &UDP{SrcPort: word(0), DstPort: word(1), Length: word(2), Checksum: word(3)}
	all := int(h.Length)
	switch {
	case all < udpLength:
		return fmt.Errorf("a UDP packet of %d bytes", all)
	case all > len(data):
		p.SetTruncated()
		all = len(data)
	}
	h.Base = Base{data[:udpLength], data[udpLength:all]}
	p.AddLayer(h)
	p.SetTransportLayer(h)
	if t, ok := behind[h.DstPort]; ok {
		return p.NextDecoder(t)
	}
	return p.NextDecoder(gopacket.LayerTypePayload)
}

package pipeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Self holds the addresses of the switch itself. A program needs them if the switch makes
// connections. The switch answers ARP requests and neighbour solicitations for these addresses. A
// frame with one of them as its source is neither learnt nor forwarded. A frame to one of them is
// dropped unless the program handles it.
type Self struct {
	// MAC is the address of every port of the switch; zero: the switch has no addresses.
	MAC wire.MAC
	// Addrs are IPv4 and IPv6 addresses.
	Addrs []netip.Addr
}

func (s *Self) validate() error {
	switch {
	case s.MAC.IsMulticast():
		return fmt.Errorf("pipeline: %v is a group address; the switch needs a unicast MAC address", s.MAC)
	case s.MAC == (wire.MAC{}) && len(s.Addrs) != 0:
		return errors.New("pipeline: a switch with IP addresses needs a MAC address")
	}
	for _, a := range s.Addrs {
		if !a.IsValid() || a.IsMulticast() || a.IsUnspecified() || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("pipeline: %v cannot be an address of the switch; use a unicast address without a zone", a)
		}
	}
	return nil
}

// owns reports whether m is the MAC address of the switch.
func (s *Self) owns(m wire.MAC) bool { return m == s.MAC && m != (wire.MAC{}) }

// Numbers of ARP (RFC 826) and of neighbour discovery (RFC 4861).
const (
	arpLen     = 28
	arpRequest = 1
	arpReply   = 2

	protocolICMPv6 = 58
	neighborAsk    = 135
	neighborAnswer = 136
	neighborLen    = 24 // a message without options
	optTarget      = 2  // target link-layer address
	flagsSolicited = 0x60
	flagsOverride  = 0x20
	noHopLimit     = 255 // the hop limit if no router has forwarded the packet
)

// arpHead is an ARP header for Ethernet and IPv4 up to the operation.
var arpHead = []byte{0, 1, 8, 0, 6, 4}

// selfFrame answers an ARP request or a neighbour solicitation for an address of the switch. It
// reports whether f was one.
func (s *Switch) selfFrame(in int, f packetio.Frame) bool {
	if len(s.self.Addrs) == 0 {
		return false
	}
	var eth wire.Ethernet
	if eth.Parse(f.Data) != nil {
		return false
	}
	var answer []byte
	switch body := f.Data[eth.Len():]; eth.Type {
	case wire.EtherTypeARP:
		answer = s.self.answerARP(&eth, body, s.out)
	case wire.EtherTypeIPv6:
		answer = s.self.answerNeighbor(&eth, body, s.out)
	}
	if answer == nil {
		return false
	}
	s.counters.Answered++
	s.notes.add(-1, "answered by the switch")
	s.notes.text = "the switch's own address"
	s.forward(-1, in, packetio.Frame{Data: answer})
	s.notes.text = ""
	return true
}

// answerARP returns the reply to an ARP request for an address of the switch, in memory of `out`.
// It returns nil if b is not such a request.
func (s *Self) answerARP(eth *wire.Ethernet, b []byte, out *packetio.Batch) []byte {
	if len(b) < arpLen || !bytes.Equal(b[:6], arpHead) || binary.BigEndian.Uint16(b[6:]) != arpRequest {
		return nil
	}
	if !slices.Contains(s.Addrs, netip.AddrFrom4([4]byte(b[24:28]))) {
		return nil
	}
	h := wire.Ethernet{Dst: eth.Src, Src: s.MAC, Tagged: eth.Tagged, TCI: eth.TCI, Type: wire.EtherTypeARP}
	reply := append(h.AppendTo(out.Alloc(h.Len()+arpLen)), arpHead...)
	reply = append(reply, 0, arpReply)
	reply = append(append(reply, s.MAC[:]...), b[24:28]...)
	return append(reply, b[8:18]...) // the MAC and IP address of the requesting host
}

// answerNeighbor returns the advertisement that answers a neighbour solicitation for an address of
// the switch, in memory of `out`. It returns nil if b is not such a solicitation. A solicitation
// from the unspecified address asks whether the address is free (RFC 4862), so the answer goes to
// all nodes.
func (s *Self) answerNeighbor(eth *wire.Ethernet, b []byte, out *packetio.Batch) []byte {
	var ip wire.IPv6
	if ip.Parse(b) != nil || ip.NextHeader != protocolICMPv6 || ip.HopLimit != noHopLimit || ip.PayloadLen < neighborLen {
		return nil
	}
	msg := b[ip.Len() : ip.Len()+int(ip.PayloadLen)]
	if msg[0] != neighborAsk || msg[1] != 0 || icmpv6Sum(&ip, msg) != 0 {
		return nil
	}
	target := [16]byte(msg[8:24])
	if !slices.Contains(s.Addrs, netip.AddrFrom16(target)) {
		return nil
	}
	h := wire.Ethernet{Dst: eth.Src, Src: s.MAC, Tagged: eth.Tagged, TCI: eth.TCI, Type: wire.EtherTypeIPv6}
	answer := wire.IPv6{NextHeader: protocolICMPv6, HopLimit: noHopLimit, Src: target, Dst: ip.Src}
	flags := byte(flagsSolicited)
	if ip.Src == [16]byte{} {
		h.Dst, answer.Dst, flags = wire.MAC{0x33, 0x33, 0, 0, 0, 1}, netip.IPv6LinkLocalAllNodes().As16(), flagsOverride
	}
	const length = neighborLen + 8
	reply := answer.AppendTo(h.AppendTo(out.Alloc(h.Len()+ip.Len()+length)), length)
	start := len(reply)
	reply = append(reply, neighborAnswer, 0, 0, 0, flags, 0, 0, 0)
	reply = append(reply, target[:]...)
	reply = append(append(reply, optTarget, 1), s.MAC[:]...)
	binary.BigEndian.PutUint16(reply[start+2:], icmpv6Sum(&answer, reply[start:]))
	return reply
}

// icmpv6Sum returns the checksum over a message and its pseudo-header (RFC 4443, 2.3). It is 0 for
// a message with a correct checksum.
func icmpv6Sum(ip *wire.IPv6, msg []byte) uint16 {
	sum := uint32(len(msg)) + protocolICMPv6
	add := func(b []byte) {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(ip.Src[:])
	add(ip.Dst[:])
	add(msg)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

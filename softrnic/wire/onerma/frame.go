package onerma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// UDPPort is the destination port of all messages.
const UDPPort = 4792

// Lengths of the headers in front of a message, in bytes.
const (
	ipv4Len = 20
	udpLen  = 8
	// Overhead is the number of bytes of an IP packet that are not part of the body.
	Overhead = ipv4Len + udpLen + HeaderLen + TagLen
	// MaxFrame is the length of the longest frame. With a VLAN tag, its Ethernet header has 18
	// bytes.
	MaxFrame = 18 + Overhead + MaxOp
)

// ErrNot is what ParseFrame returns for a frame that is not a UDP datagram over IPv4 to port 4792.
var ErrNot = errors.New("not an ONERMA frame")

// Frame is a whole frame. Sealed and Clear point into the bytes that were passed to ParseFrame.
type Frame struct {
	Eth  wire.Ethernet
	IPv4 wire.IPv4
	UDP  wire.UDP
	Header
	// Clear holds the bytes of the header, Sealed those of the encrypted body and the tag.
	Clear, Sealed []byte
}

// ParseFrame parses a frame without FCS into f. The error is ErrNot, or a *FormatError of this
// package or of softrnic/wire. Padding behind the IP datagram is ignored. The UDP checksum is
// ignored, too: the tag authenticates header and body, and also the address of the sender.
func ParseFrame(b []byte, f *Frame) error {
	if err := f.Eth.Parse(b); err != nil || f.Eth.Type != wire.EtherTypeIPv4 {
		return ErrNot
	}
	b = b[f.Eth.Len():]
	if !toPort(b) {
		return ErrNot
	}
	if err := f.IPv4.Parse(b); err != nil {
		return err
	}
	b = b[ipv4Len:f.IPv4.TotalLen]
	if err := f.UDP.Parse(b); err != nil {
		return err
	}
	b = b[udpLen:]
	if err := f.Header.Parse(b); err != nil {
		return err
	}
	f.Clear, f.Sealed = b[:HeaderLen:HeaderLen], b[HeaderLen:]
	return nil
}

// Is reports whether b is a frame for this package: a UDP datagram over IPv4 to UDPPort, with at
// most one VLAN tag.
func Is(b []byte) bool {
	const ethLen, tagLen, tpid = 14, 4, 0x8100
	at := ethLen
	if len(b) >= ethLen+tagLen && binary.BigEndian.Uint16(b[12:]) == tpid {
		at += tagLen
	}
	return len(b) >= at+ipv4Len && binary.BigEndian.Uint16(b[at-2:]) == wire.EtherTypeIPv4 && toPort(b[at:])
}

// toPort reports whether an IPv4 packet is a datagram to UDPPort. It is false for IP fragments
// except the first one.
func toPort(b []byte) bool {
	const fragment = 0x1fff
	if len(b) < ipv4Len || b[9] != wire.ProtocolUDP || binary.BigEndian.Uint16(b[6:])&fragment != 0 {
		return false
	}
	at := int(b[0]&0xf) * 4
	return len(b) >= at+4 && binary.BigEndian.Uint16(b[at+2:]) == UDPPort
}

// AppendOpen appends everything in front of the body: Ethernet, IPv4, UDP and the header of a
// message with a body of n bytes. The caller then appends the n bytes and the tag. AppendOpen
// allocates only if b has no room.
func (f *Frame) AppendOpen(b []byte, n int) []byte {
	f.Eth.Type, f.IPv4.Protocol, f.UDP.DstPort = wire.EtherTypeIPv4, wire.ProtocolUDP, UDPPort
	size := HeaderLen + n + TagLen
	b = f.IPv4.AppendTo(f.Eth.AppendTo(b), udpLen+size)
	return f.Header.AppendTo(f.UDP.AppendTo(b, size))
}

// Len returns the length of a frame with a body of n bytes.
func (f *Frame) Len(n int) int { return f.Eth.Len() + Overhead + n }

func (f *Frame) String() string {
	return fmt.Sprintf("%v > %v ONERMA %v", netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst), &f.Header)
}

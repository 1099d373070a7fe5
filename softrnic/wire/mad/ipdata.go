package mad

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

//	+-------+-------+-------+-------+-------------------------------+
//	| major | minor |  IPv  |  res. |          source port          |
//	+-------+-------+-------+-------+-------------------------------+
//	|           source address, 16 bytes (IPv4: the last 4)         |
//	+---------------------------------------------------------------+
//	|        destination address, 16 bytes (IPv4: the last 4)       |
//	+---------------------------------------------------------------+

// IPDataLen is the length of the header that RDMA-CM puts in front of the private data of a REQ or
// SIDR_REQ, in bytes.
const IPDataLen = 36

// IPData is the header that RDMA-CM puts in front of the private data of a REQ or SIDR_REQ (IBTA
// A11.6). It has the IP addresses of both ends of the connection, and the port of the end that sends
// the message. The port of the other end is in the service ID.
type IPData struct {
	Major, Minor uint8 // version 0.0
	SrcPort      uint16
	Src, Dst     netip.Addr // addresses of one family, without zone
}

func (d *IPData) Parse(b []byte) error {
	if err := need(b, IPDataLen, "RDMA-CM header"); err != nil {
		return err
	}
	*d = IPData{Major: b[0] >> 4, Minor: b[0] & mask4, SrcPort: be16(b, 2)}
	src, dst := [16]byte(b[4:]), [16]byte(b[20:])
	switch version := b[1] >> 4; version {
	case 4:
		d.Src, d.Dst = netip.AddrFrom4([4]byte(src[12:])), netip.AddrFrom4([4]byte(dst[12:]))
	case 6:
		d.Src, d.Dst = netip.AddrFrom16(src), netip.AddrFrom16(dst)
	default:
		return &wire.FormatError{Header: "RDMA-CM header", Reason: wire.ErrVersion, Got: int(version), Want: 4}
	}
	return nil
}

func (d *IPData) AppendTo(b []byte) []byte {
	version, src, dst := uint8(6), d.Src.As16(), d.Dst.As16()
	if d.Src.Is4() {
		version = 4
		src, dst = last4(d.Src), last4(d.Dst)
	}
	b = put16(append(b, d.Major<<4|d.Minor&mask4, version<<4), d.SrcPort)
	return append(append(b, src[:]...), dst[:]...)
}

// last4 returns an IPv4 address in the form of RDMA-CM: after 12 zero bytes, not IPv4-mapped.
func last4(a netip.Addr) (out [16]byte) {
	v4 := a.As16()
	copy(out[12:], v4[12:])
	return out
}

// Service IDs of RDMA-CM (IBTA A11.2): a prefix, the port space, the port.
const (
	ipServicePrefix ServiceID = 0x01_00_0000
	// SpaceTCP is the port space of connected services. SpaceUDP is the port space of datagram
	// services.
	SpaceTCP ServiceID = 0x06
	SpaceUDP ServiceID = 0x11
	// SpaceIB is the port space whose services are of any type.
	SpaceIB ServiceID = 0x3f
)

const portBits = 16

// PortService returns the service ID of a port.
func PortService(space ServiceID, port uint16) ServiceID {
	return ipServicePrefix | space<<portBits | ServiceID(port)
}

// Port returns the port of a service ID of RDMA-CM; ok is false for other services.
func (s ServiceID) Port() (space ServiceID, port uint16, ok bool) {
	space = s >> portBits & 0xff
	return space, uint16(s), s == PortService(space, uint16(s))
}

// String returns a text like tcp:4420 if s is a port of RDMA-CM in one of these port spaces, and
// otherwise the number.
func (s ServiceID) String() string {
	switch space, port, ok := s.Port(); {
	case ok && space == SpaceTCP:
		return fmt.Sprintf("tcp:%d", port)
	case ok && space == SpaceUDP:
		return fmt.Sprintf("udp:%d", port)
	case ok && space == SpaceIB:
		return fmt.Sprintf("ib:%d", port)
	}
	return fmt.Sprintf("%#016x", uint64(s))
}

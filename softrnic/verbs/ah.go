package verbs

import (
	"encoding/binary"
	"fmt"
)

// AHAttr is the address of a datagram's receiver: the attributes in ibv_ah_attr of a RoCEv2 port.
type AHAttr struct {
	DestGID      GID
	SourceGID    int // index into DeviceAttr.GIDs; must be of the same family as DestGID
	TrafficClass uint8
	HopLimit     uint8 // 0 means 64
	// FlowLabel has 20 bits. Over IPv6 it is sent as flow label. Over IPv4 and IPv6 the UDP source
	// port is derived from it. 0 means that packets have no flow label, and that the port depends on
	// the queue pair.
	FlowLabel uint32
}

// AH is an address handle: an address that was resolved once, for datagrams of queue pairs of its
// protection domain. It must exist until the work requests that use it are complete.
type AH interface {
	// Handle returns the NIC's number of the address handle, never 0.
	Handle() uint32
	Destroy() error
}

// GRHLen is the length in bytes of the area in front of a received datagram's payload. Over IPv6 it
// holds the IPv6 header, over IPv4 the IPv4 header in its last 20 bytes (IBTA annex A17.4.5.1).
const GRHLen = 40

// GRH has the fields of the IP header in front of a datagram's payload; see GRHLen.
type GRH struct {
	Source, Dest GID
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32 // always 0 over IPv4
}

// ParseGRH parses the first GRHLen bytes of a receive whose completion has WithGRH. It fails with
// ErrInvalid if b has neither an IPv6 nor an IPv4 header. To answer the sender, use Source as the
// DestGID of an address handle, as ibv_init_ah_from_wc does.
func ParseGRH(b []byte) (GRH, error) {
	fail := func(format string, args ...any) (GRH, error) {
		return GRH{}, &OpError{Op: "parse GRH", Err: ErrInvalid, Detail: fmt.Sprintf(format, args...)}
	}
	if len(b) < GRHLen {
		return fail("%d bytes, want %d", len(b), GRHLen)
	}
	const v4 = GRHLen - 20
	switch {
	case b[0]>>4 == 6:
		return GRH{
			Source: GID(b[8:24]), Dest: GID(b[24:40]),
			TrafficClass: uint8(binary.BigEndian.Uint16(b) >> 4), HopLimit: b[7],
			FlowLabel: binary.BigEndian.Uint32(b) & 0xfffff,
		}, nil
	case b[v4]>>4 == 4:
		return GRH{Source: GIDOf4([4]byte(b[v4+12:])), Dest: GIDOf4([4]byte(b[v4+16:])), TrafficClass: b[v4+1], HopLimit: b[v4+8]}, nil
	}
	return fail("neither an IPv6 nor an IPv4 header: %x", b[:GRHLen])
}

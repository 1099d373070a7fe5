package lookuptable

import (
	"encoding/binary"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Ops says what an Action does.
type Ops uint8

// Bits of an Ops. At most one of OpSource and OpDestination is set.
const (
	// OpDrop drops the frame.
	OpDrop Ops = 1 << iota
	// OpDSCP sets the DSCP.
	OpDSCP
	// OpEgress makes the frame leave the switch through port Egress.
	OpEgress
	// OpSource replaces the frame's source address by Addr, and its source port by Port if Port is
	// not 0. OpDestination does so with the destination.
	OpSource
	OpDestination

	opsKnown = OpDrop | OpDSCP | OpEgress | OpSource | OpDestination
	rewrites = OpSource | OpDestination
)

// Action is what the switch does with a frame that has the key of an entry.
type Action struct {
	Ops    Ops
	DSCP   uint8 // 6 bits
	Egress uint16
	Addr   [16]byte
	Port   uint16
}

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// fits reports whether the action can be applied to a frame. Addresses and ports of a RoCEv2 packet
// cannot be replaced, because its ICRC covers them.
func (a *Action) fits(b []byte, v *view) bool {
	roce := v.ports && v.proto == protoUDP && binary.BigEndian.Uint16(b[v.l4+2:]) == rocePort
	return a.Ops&rewrites == 0 || !roce
}

// apply changes a frame in place, with its checksums; the caller carries out OpDrop and OpEgress.
// flow is true if the key of the entry is a flow, and false if it is a destination. mac returns the
// MAC address of the host with an IP address.
func (a *Action) apply(f *packetio.Frame, v *view, flow bool, mac func(netip.Addr) (wire.MAC, bool)) {
	b := f.Data
	if a.Ops&OpDSCP != 0 {
		a.mark(b, v)
	}
	if a.Ops&rewrites == 0 {
		return
	}
	var q quote
	if v.parseQuote(b, &q) && !a.rewriteQuote(f, v, &q, flow) {
		return
	}
	end, dst := v.addrs(b)
	port := 0
	if a.Ops&OpDestination != 0 {
		end, port = dst, 2
		if m, ok := mac(addrOf(a.Addr, v.v6)); ok {
			copy(b, m[:])
		}
	}
	delta := packetio.SumGrows(end, a.Addr[:len(end)])
	copy(end, a.Addr[:])
	if !v.v6 {
		packetio.FixSum(b[v.ip+10:], delta)
	}
	at := v.sumAt(b)
	if at == 0 {
		return
	}
	if a.Port != 0 && v.ports {
		p, to := b[v.l4+port:][:2], [2]byte{byte(a.Port >> 8), byte(a.Port)}
		d := packetio.SumGrows(p, to[:])
		copy(p, to[:])
		if !f.CsumPartial { // an unfinished checksum (offload) does not cover the ports yet
			delta += d
		}
	}
	if f.CsumPartial { // the field has the sum of the addresses, which is not inverted
		binary.BigEndian.PutUint16(b[at:], packetio.Fold(uint64(binary.BigEndian.Uint16(b[at:]))+delta))
	} else {
		fixSum(b[at:], v.proto, delta)
	}
}

// mark sets the DSCP.
func (a *Action) mark(b []byte, v *view) {
	ip := b[v.ip:]
	if v.v6 {
		ip[0], ip[1] = ip[0]&0xf0|a.DSCP>>2, ip[1]&0x3f|a.DSCP<<6
		return
	}
	was := [2]byte{ip[0], ip[1]}
	ip[1] = ip[1]&3 | a.DSCP<<2
	packetio.FixSum(ip[10:], packetio.SumGrows(was[:], ip[:2]))
}

// fixSum adds delta to the checksum of a transport protocol.
func fixSum(b []byte, proto uint8, delta uint64) {
	if proto == protoUDP {
		packetio.FixUDPSum(b, delta)
		return
	}
	packetio.FixSum(b, delta)
}

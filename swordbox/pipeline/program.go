package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Program decides what happens to RoCEv2 packets. It acts only through the Ctx that the switch
// passes, and only during the call.
type Program interface {
	// Spec declares the program. It returns the same at every call.
	Spec() Spec
	// Packet is called for each well-formed RoCEv2 packet, in the order of arrival; for a
	// super-frame and for a packet with a wrong ICRC see Spec. c and p are valid until it returns.
	// It may change the headers and the Payload slice of p.Frame (not the bytes that Payload points
	// to) and return Rewrite.
	Packet(c *Ctx, p *Parsed) Verdict
	// Tick is called at Deadline.
	Tick(c *Ctx)
	// Deadline returns when Tick must be called; clock.Never: no call is needed.
	Deadline() clock.Time
}

// NoTimer has the methods Tick and Deadline of a Program, or of a part of one, that needs no timer.
type NoTimer struct{}

func (NoTimer) Tick(*Ctx) {}

func (NoTimer) Deadline() clock.Time { return clock.Never }

// Parsed is a RoCEv2 packet in the pipeline.
type Parsed struct {
	wire.Frame
	// Raw is the packet as it was received, which may be not encoded; see Bytes. It must not be changed.
	Raw packetio.Frame
	// Ingress is the port at which the packet arrived.
	Ingress int
	// Own is true if the packet is addressed to the switch itself (Config.Self). The switch cannot
	// forward such a packet.
	Own bool
	// Packets is 1, or the number of packets of a super-frame. For a super-frame, Frame is its
	// first packet without payload.
	Packets int

	packet []byte // Raw, or the first packet of a super-frame
	icrc   icrcState
	sealer *wire.Sealer
	bytes  []byte // memory for Bytes
}

// Bytes returns the bytes of the packet as it was received. They are valid until the program returns.
func (p *Parsed) Bytes() []byte {
	if p.Raw.Open == nil {
		return p.Raw.Data
	}
	p.bytes = p.Raw.Open.AppendTo(p.bytes[:0], p.sealer)
	return p.bytes
}

// icrcState is what the switch knows about a packet's ICRC.
type icrcState uint8

const (
	icrcUnknown icrcState = iota
	icrcRight
	icrcWrong
)

// Burst returns the UDP payloads of the packets of a super-frame, one after the other. size is the
// length of each; the last one may be shorter.
func (p *Parsed) Burst() (b []byte, size int) {
	return p.Raw.Data[len(p.packet)-int(p.UDP.Length)+udpHeader:], p.Raw.SegSize
}

// udpHeader is the length of a UDP header in bytes. UDP.Length includes it.
const udpHeader = 8

// Intact reports whether the ICRC of the packet is correct; of a super-frame it checks the first
// packet. Only the first call computes the ICRC.
func (p *Parsed) Intact() bool {
	if p.icrc == icrcUnknown {
		p.icrc = icrcWrong
		if p.sealer.Check(p.packet) {
			p.icrc = icrcRight
		}
	}
	return p.icrc == icrcRight
}

// seal encodes f, which takes n bytes, in memory of out. If f has the payload of the received
// packet, seal derives the ICRC without summing the payload again.
func (p *Parsed) seal(f *wire.Frame, n int, out *packetio.Batch) []byte {
	var received []byte
	if p.icrc == icrcRight {
		received = p.packet
	}
	return p.sealer.AppendChanged(out.Alloc(n), f, received)
}

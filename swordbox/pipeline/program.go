package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Program decides about RoCEv2 packets. It is a value like everything here: it acts only through the Ctx that it
// is handed, and only during the call.
type Program interface {
	// Spec declares the program. It returns the same for the life of the program.
	Spec() Spec
	// Packet is called for each well-formed RoCEv2 packet, in the order of arrival. c and p are valid until it
	// returns. It may change the headers and the Payload slice of p.Frame (not the bytes that Payload points to)
	// and return Rewrite.
	Packet(c *Ctx, p *Parsed) Verdict
	// Tick is called when Deadline has come.
	Tick(c *Ctx)
	// Deadline is when Tick wants to be called; clock.Never if not at all.
	Deadline() clock.Time
}

// Spec is the inert declaration of a program: what it is called, what it needs, and which memory of a switch it
// would take.
type Spec struct {
	Name string
	// Doc is one sentence for listings.
	Doc string
	// Split asks for super-frames to be taken apart, so that Packet sees every packet. Without it Packet is
	// called once for a super-frame, with the headers of its first packet, and may ask for that by Apart.
	Split bool
	// Verify keeps packets with a wrong ICRC from the program. They are forwarded as they are: the receiver
	// drops and counts them. Rewrite verifies in any case, because a new ICRC would hide the damage.
	Verify bool
	// Tables and Registers are the state that the program keeps, with the sizes a hardware switch would need.
	Tables    []TableSpec
	Registers []RegisterSpec
}

// TableSpec declares an exact-match table.
type TableSpec struct {
	Name               string
	KeyBits, ValueBits int
	Entries            int
}

// Bits is the memory that the table takes.
func (t TableSpec) Bits() int { return t.Entries * (t.KeyBits + t.ValueBits) }

// RegisterSpec declares an array of registers.
type RegisterSpec struct {
	Name    string
	Width   int // bits of one register
	Entries int
}

// Bits is the memory that the registers take.
func (r RegisterSpec) Bits() int { return r.Entries * r.Width }

// Bits is the memory of all tables and registers of the program.
func (s *Spec) Bits() int {
	n := 0
	for _, t := range s.Tables {
		n += t.Bits()
	}
	for _, r := range s.Registers {
		n += r.Bits()
	}
	return n
}

// Parsed is a RoCEv2 packet in the pipeline.
type Parsed struct {
	wire.Frame
	// Raw is the packet as it arrived. It must not be changed.
	Raw packetio.Frame
	// Ingress is the port that it came from.
	Ingress int
	// Own says that the packet is addressed to the switch itself (Config.Self). It cannot be forwarded.
	Own bool
	// Packets is 1, or the number of packets of a super-frame; Frame is then the first of them, without payload.
	Packets int

	packet []byte // Raw, or the first packet of a super-frame
	icrc   icrcState
	sealer *wire.Sealer
}

// icrcState is what is known about a packet's ICRC.
type icrcState uint8

const (
	icrcUnknown icrcState = iota
	icrcRight
	icrcWrong
)

// Burst is the UDP payload of a super-frame, packet behind packet, and the length of one; the last may be shorter.
func (p *Parsed) Burst() (b []byte, size int) {
	return p.Raw.Data[len(p.packet)-int(p.UDP.Length)+udpHeader:], p.Raw.SegSize
}

// udpHeader is the length of a UDP header, which UDP.Length counts.
const udpHeader = 8

// Intact reports whether the ICRC is right, of a super-frame that of its first packet. It is computed once, and not at
// all if nobody asks.
func (p *Parsed) Intact() bool {
	if p.icrc == icrcUnknown {
		p.icrc = icrcWrong
		if p.sealer.Check(p.packet) {
			p.icrc = icrcRight
		}
	}
	return p.icrc == icrcRight
}

package pipeline

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Guard is a Program that may refuse frames that the switch cannot pass to it because their headers
// are damaged. A fault behind the switch could restore such a frame: its receiver would then accept
// a packet that the program has not seen.
type Guard interface {
	Program
	// Guards reports whether the switch must drop damaged frames and not forward them: RoCEv2
	// packets with malformed headers, frames with a damaged IP header (wire.DamagedIP), and RoCEv2
	// packets that look like other frames because of one wrong bit (wire.Unhidden). The switch calls
	// Guards for each frame that it does not pass to the program, and for each super-frame.
	Guards() bool
}

// guard decides about the frames that the switch does not pass to its program.
type guard struct {
	program Guard // nil: no frame is refused
	// scratch holds a copy of a frame in which one wrong bit is corrected. If the copy is a
	// super-frame, segment holds its first packet.
	scratch, segment []byte
}

// refusesWhole reports whether the program refuses a super-frame because its IP header is damaged.
// The damage must be found before the super-frame is split: its packets get new header checksums.
func (g *guard) refusesWhole(frame []byte) bool {
	return g.program != nil && g.program.Guards() && wire.DamagedIP(frame)
}

// refuses reports whether the program refuses a frame that ParseFrame has refused for the reason
// err. headers is the frame or, for a super-frame of RoCEv2 packets, one of its packets. segSize is
// the frame's SegSize.
func (g *guard) refuses(headers []byte, segSize int, err error) bool {
	if g.program == nil || !g.program.Guards() {
		return false
	}
	if !errors.Is(err, wire.ErrNotRoCE) || wire.DamagedIP(headers) {
		return true
	}
	var hidden bool
	if hidden, g.scratch = wire.Unhidden(headers, g.scratch); !hidden {
		return false
	}
	packet := g.scratch
	if f := (packetio.Frame{Data: packet, SegSize: segSize}); f.Splittable() {
		g.segment = f.AppendSegment(g.segment[:0], 0)
		packet = g.segment
	}
	return wire.CheckICRC(packet)
}

package pipeline

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Guard is a Program that may refuse frames which the switch cannot pass to it because their headers
// are damaged. A fault behind the switch could restore such a frame: its receiver would then accept a
// packet that the program has not seen.
type Guard interface {
	Program
	// Guards reports whether the switch drops RoCEv2 packets with malformed headers, frames with a
	// damaged IP header (wire.DamagedIP), and packets that one wrong bit hides (wire.Hidden). It
	// forwards them otherwise. The switch asks for each frame that it does not pass to the program, and
	// for each super-frame.
	Guards() bool
}

// guard decides about the frames that the switch does not pass to its program.
type guard struct {
	program Guard // nil: no frame is refused
	scratch []byte
}

// refusesWhole reports whether the program refuses a super-frame because its IP header is damaged. Its
// packets would not show that, because splitting computes their checksums.
func (g *guard) refusesWhole(frame []byte) bool {
	return g.program != nil && g.program.Guards() && wire.DamagedIP(frame)
}

// refuses reports whether the program refuses a frame that ParseFrame has refused for the reason err.
func (g *guard) refuses(headers []byte, err error) bool {
	if g.program == nil || !g.program.Guards() {
		return false
	}
	if !errors.Is(err, wire.ErrNotRoCE) || wire.DamagedIP(headers) {
		return true
	}
	var hidden bool
	hidden, g.scratch = wire.Hidden(headers, g.scratch)
	return hidden
}

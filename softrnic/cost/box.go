package cost

import (
	"bytes"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Box applies the costs of a switch in virtual time. It is a state machine.
type Box struct {
	sw    *Switch
	cores []server
	frame wire.Frame
}

func NewBox(sw *Switch) *Box { return &Box{sw: sw, cores: make([]server, sw.Cores)} }

// Depart returns the time at which a frame leaves the switch, if the switch makes it at the time
// `now`. cause is the received frame that led to it; nil means none. A RoCEv2 frame that equals
// cause occupies a core as Switch.Forward says, any other RoCEv2 frame as Switch.Rewrite says.
func (b *Box) Depart(now clock.Time, frame, cause []byte) clock.Time {
	at := picoOf(now)
	if len(b.cores) > 0 && wire.ParseFrame(frame, &b.frame) == nil {
		price := b.sw.Forward
		if !bytes.Equal(frame, cause) {
			price = b.sw.Rewrite
		}
		span := price.span()
		at = b.core(&b.frame).serve(at, span) + span
	}
	return (at + picoOf(clock.Time(b.sw.Delay))).time()
}

// core returns the core that serves the destination queue pair of a packet. A middlebox gives all
// packets for a queue pair to one core, because only that core knows their order (SwordBox §6.3).
// Queue pairs are distributed over the cores by their number and host.
func (b *Box) core(f *wire.Frame) *server {
	h := uint32(f.BTH.DestQP)
	for _, v := range f.Eth.Dst {
		h = (h ^ uint32(v)) * 16777619
	}
	h ^= h >> 15
	return &b.cores[h%uint32(len(b.cores))]
}

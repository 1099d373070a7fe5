package cost

import (
	"bytes"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Box is the machine that carries out the figures of a switch.
type Box struct {
	sw    *Switch
	cores []server
	frame wire.Frame
}

// NewBox makes the machine.
func NewBox(sw *Switch) *Box { return &Box{sw: sw, cores: make([]server, sw.Cores)} }

// Depart says when a frame that the switch makes at now leaves it. cause is the frame that came in
// and let it be made, nil if there is none: a frame that differs from its cause has been rewritten.
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

// core returns the core that serves the destination queue pair of a packet: a middlebox gives all
// packets to a queue pair to one core, which alone knows their order (SwordBox §6.3). Queue pairs
// are spread by their number and host.
func (b *Box) core(f *wire.Frame) *server {
	h := uint32(f.BTH.DestQP)
	for _, v := range f.Eth.Dst {
		h = (h ^ uint32(v)) * 16777619
	}
	h ^= h >> 15
	return &b.cores[h%uint32(len(b.cores))]
}

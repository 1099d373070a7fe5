package pipeline

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Load puts another program, a fresh one, in the place of the one that runs, as a step: packets that the former one holds go on
// their way as they came. What the switch has learnt and counted, partitions and links stay as they are. What the former program
// does to connections beyond that ends at once; whether they can bear that, the caller must know.
func (s *Switch) Load(now clock.Time, p Program, self Self, out *packetio.Batch) error {
	if p == nil {
		return errors.New("pipeline: no program: apps/forward is the plain one")
	}
	if err := self.validate(); err != nil {
		return err
	}
	s.begin(now, out)
	s.note = "held until its program went"
	for i := range s.held.slots {
		h := &s.held.slots[i]
		if !h.live {
			continue
		}
		s.release(h)
		s.held.remove(HoldID(h.gen)<<32 | HoldID(i))
	}
	s.note = ""
	s.program, s.spec, s.self = p, p.Spec(), self
	s.out = nil
	return nil
}

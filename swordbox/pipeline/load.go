package pipeline

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Load replaces the running program by another one, in one step. The switch forwards the packets
// that the former program holds, unchanged. Learnt addresses, counters, partitions and links stay.
// All that the former program did for connections ends at once. Connections that need the former
// program, for example because it translated their PSNs, break. Load does not check this; the
// caller must.
func (s *Switch) Load(now clock.Time, p Program, self Self, out *packetio.Batch) error {
	if p == nil {
		return errors.New("pipeline: the program is nil; apps/forward only forwards")
	}
	if err := self.validate(); err != nil {
		return err
	}
	s.begin(now, out)
	s.notes.text = "held until its program was replaced"
	for i := range s.held.slots {
		h := &s.held.slots[i]
		if !h.live {
			continue
		}
		s.release(h)
		s.held.remove(HoldID(h.gen)<<32 | HoldID(i))
	}
	s.notes.text = ""
	s.program = load(p)
	s.Marks.marker, _ = p.(Marker)
	s.self = self
	s.out = nil
	return nil
}

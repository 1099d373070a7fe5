package machines

import (
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// End is an end of a trunk: the trunk's name, and the switch.
type End struct{ Trunk, At string }

// Clock is how far the clock of a machine is ahead of that of the rack's first machine; its error is at
// most Error.
type Clock struct{ Ahead, Error time.Duration }

// Clocks returns the clocks of the machines that trunks have measured, by the names of the machines. The first
// machine's is always there; another is missing if no trunk that has worked leads to it. Of several ways the
// one with the smallest error counts.
func Clocks(r *rackfile.Rack, ends map[End]trunk.Stats) map[string]Clock {
	if len(r.Machines) == 0 {
		return nil
	}
	known := map[string]Clock{r.Machines[0].Name: {}}
	for range r.Machines { // a way has fewer trunks than there are machines
		for _, t := range r.Trunks() {
			for _, side := range [2][2]string{{t.Leaf, t.Far}, {t.Far, t.Leaf}} {
				from, to := r.MachineOf(side[0]), r.MachineOf(side[1])
				s, ok := ends[End{t.Name(), side[0]}]
				if !ok || s.Shortest <= 0 || from == to {
					continue
				}
				learn(known, from, to, Clock{s.Ahead, (s.Shortest + 1) / 2})
				learn(known, to, from, Clock{-s.Ahead, (s.Shortest + 1) / 2})
			}
		}
	}
	return known
}

// learn notes the clock of a machine, if the way by another one has a smaller error than what is known.
func learn(known map[string]Clock, from, to string, step Clock) {
	base, ok := known[from]
	if !ok {
		return
	}
	c := Clock{base.Ahead + step.Ahead, base.Error + step.Error}
	if was, ok := known[to]; !ok || c.Error < was.Error {
		known[to] = c
	}
}

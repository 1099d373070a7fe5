package simrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// cardTiming is the sim.Timing of a host's NIC, by the cost model of the NIC.
type cardTiming struct{ card *cost.Card }

// Arrive returns the time at which the NIC has received a frame and executes it.
func (t cardTiming) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	return t.card.Arrive(now, frame)
}

// Depart returns the time at which a frame leaves the NIC. A frame that was made in a call of an
// application (cause.Step) also has the costs of posting it.
func (t cardTiming) Depart(now clock.Time, _ int, frame []byte, cause sim.Cause) clock.Time {
	return t.card.Depart(now, frame, cause.Step)
}

// boxTiming is the sim.Timing of the switch, by the cost model of the switch. If box is nil, frames
// take no time there. transits, which may be nil, measures their times.
type boxTiming struct {
	box      *cost.Box
	transits *transits
}

// Arrive returns now, because the cost model puts all costs of the switch behind its program.
func (t boxTiming) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	t.transits.arrive(now, frame)
	return now
}

// Depart returns the time at which a frame leaves the switch.
func (t boxTiming) Depart(now clock.Time, _ int, frame []byte, cause sim.Cause) clock.Time {
	at := now
	if t.box != nil {
		at = t.box.Depart(now, frame, cause.Frame)
	}
	t.transits.depart(at, frame)
	return at
}

// charge makes the work of the host's NIC take the time that the rack's cost model says. No earlier
// work is in progress after that.
func (h *Host) charge() {
	h.card = cost.NewCard(&h.rack.opt.Cost.NIC, h.locate)
	h.rack.net.SetTiming(h.node, cardTiming{h.card})
}

// locate returns the memory that a request names, or false if there is none. It is a cost.Memory.
func (h *Host) locate(rkey uint32, va uint64, n int) ([]byte, bool) {
	t := h.eng.Mem()
	if t == nil {
		return nil, false
	}
	return t.Locate(rkey, va, n)
}

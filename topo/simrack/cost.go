package simrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// cardTiming is the sim.Timing of a host's NIC.
type cardTiming struct{ card *cost.Card }

// Arrive returns when a frame takes effect.
func (t cardTiming) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	return t.card.Arrive(now, frame)
}

// Depart returns when a frame leaves the NIC. If the frame was made in a call of an application,
// the application has just posted it.
func (t cardTiming) Depart(now clock.Time, _ int, frame []byte, cause sim.Cause) clock.Time {
	return t.card.Depart(now, frame, cause.Step)
}

// boxTiming is the sim.Timing of the switch. A nil box takes no time.
type boxTiming struct {
	box      *cost.Box
	transits *transits
}

// Arrive returns now, because the model of a switch has all its costs behind the program.
func (t boxTiming) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	t.transits.arrive(now, frame)
	return now
}

// Depart returns when a frame leaves.
func (t boxTiming) Depart(now clock.Time, _ int, frame []byte, cause sim.Cause) clock.Time {
	at := now
	if t.box != nil {
		at = t.box.Depart(now, frame, cause.Frame)
	}
	t.transits.depart(at, frame)
	return at
}

// charge gives the host a NIC with the costs of the model, without work in progress.
func (h *Host) charge() {
	h.card = cost.NewCard(&h.rack.opt.Cost.NIC, h.locate)
	h.rack.net.SetTiming(h.node, cardTiming{h.card})
}

// locate returns the memory that a request names. It is a cost.Memory.
func (h *Host) locate(rkey uint32, va uint64, n int) ([]byte, bool) {
	t := h.eng.Mem()
	if t == nil {
		return nil, false
	}
	return t.Locate(rkey, va, n)
}

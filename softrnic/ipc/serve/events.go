package serve

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// heard is an event that the engine has raised, for the application that it concerns, or for all
// that were attached then.
type heard struct {
	ev  verbs.AsyncEvent
	of  *port // nil: of all
	all int   // how many ports there were
}

// maxHeard bounds the events between two looks of the pump.
const maxHeard = 1024

// hear takes an event about an object of an application. One about the NIC itself is for the
// applications and for the daemon; all others are the daemon's alone. The engine calls it.
func (s *pump) hear(ev verbs.AsyncEvent) (taken bool) {
	var of *port
	switch ev.Kind {
	case verbs.EventCQErr:
		of = s.cqs[ev.CQ]
	case verbs.EventSRQLimit:
		of = s.srqs[ev.SRQ]
	case verbs.EventPortActive, verbs.EventPortErr, verbs.EventDeviceFatal:
		s.note(heard{ev: ev, all: len(s.ports)})
		return false
	default:
		of = s.qps[ev.QPN]
	}
	if of == nil {
		return false
	}
	s.note(heard{ev: ev, of: of})
	return true
}

func (s *pump) note(h heard) {
	switch {
	case h.of == nil && h.all == 0:
	case len(s.heard) < maxHeard:
		s.heard = append(s.heard, h)
	default:
		h.tell(s.ports, func(p *port) { p.lost++ })
	}
}

// tell calls f for each application that the event is for.
func (h *heard) tell(ports []*port, f func(p *port)) {
	if h.of != nil {
		f(h.of)
		return
	}
	for _, p := range ports[:min(h.all, len(ports))] { // those behind have attached later
		f(p)
	}
}

// tell sends the events to the applications.
func (s *pump) tell() {
	for i := range s.heard {
		s.heard[i].tell(s.ports, func(p *port) { p.event(s.heard[i].ev) })
	}
	s.heard = s.heard[:0]
}

// unhear forgets the events of a port that ends.
func (s *pump) unhear(p *port) {
	s.tell() // the others keep their places until then
	s.heard = slices.DeleteFunc(s.heard, func(h heard) bool { return h.of == p })
}

package serve

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// heard is an asynchronous event that the engine has raised and that was not sent yet. It is for
// one application, or for all that were attached when it was raised.
type heard struct {
	ev  verbs.AsyncEvent
	of  *port // the application; nil means all
	all int   // the number of ports when the event was raised: ports that were added later do not get it
	// target is true for an event of a target of XRC, which all handles get that it has (pump.targets). One
	// event counts once, however many handles there are.
	target bool
}

// maxHeard is the largest number of events that are kept until the next step of the pump, the
// goroutine that serves all applications.
const maxHeard = 1024

// hear is called by the engine for each asynchronous event (see engine.Hooks). An event
// about an object of an application goes to this application alone; then taken is true, and the
// engine does not queue the event for the daemon. An event about the NIC goes to all applications
// and to the daemon. All others go only to the daemon.
func (s *pump) hear(ev verbs.AsyncEvent) (taken bool) {
	var of *port
	switch ev.Kind {
	case verbs.EventCQErr:
		of = s.cqs[ev.CQ]
	case verbs.EventSRQLimit, verbs.EventSRQErr:
		of = s.srqs[ev.SRQ]
	case verbs.EventPortActive, verbs.EventPortErr, verbs.EventDeviceFatal, verbs.EventGIDChange:
		s.note(heard{ev: ev, all: len(s.ports)})
		return false
	default:
		if len(s.targets[ev.QPN]) > 0 {
			s.note(heard{ev: ev, target: true})
			return true
		}
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
	case h.of == nil && h.all == 0 && !h.target:
	case len(s.heard) < maxHeard:
		s.heard = append(s.heard, h)
	default:
		s.each(&h, func(p *port, _ *owner) { p.lost++ })
	}
}

// each calls f for each application to which the event must be sent, and for each handle of a target; for
// other objects there is no handle.
func (s *pump) each(h *heard, f func(p *port, handle *owner)) {
	switch {
	case h.target:
		for _, l := range s.targets[h.ev.QPN] {
			f(l.port, l.handle)
		}
	case h.of != nil:
		f(h.of, nil)
	default:
		for _, p := range s.ports[:min(h.all, len(s.ports))] { // the ports behind these were attached after the event
			f(p, nil)
		}
	}
}

// tell sends the collected events to the applications.
func (s *pump) tell() {
	for i := range s.heard {
		h := &s.heard[i]
		s.each(h, func(p *port, handle *owner) {
			switch {
			case handle == nil:
				p.event(h.ev)
			case !p.c.prog.report(h.ev.Kind, handle):
				p.lost++
			}
		})
	}
	s.heard = s.heard[:0]
}

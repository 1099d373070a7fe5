package paced

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Switch applies the costs of a switch and of the directions of its links to the hosts. NewSwitch makes
// one.
type Switch struct {
	link    *cost.Link
	box     *cost.Box
	ports   []port
	queue   int
	waiting hold
}

// port is the direction of a link to a host.
type port struct {
	line   *cost.Line
	queued int // frames that have left the switch's cores, and have not arrived at the host
}

// NewSwitch returns a Switch with the costs of m. queue is how many frames may wait for each link.
func NewSwitch(m *cost.Model, queue int) *Switch {
	return &Switch{link: &m.Link, box: cost.NewBox(&m.Switch), queue: queue}
}

// Made takes a frame that the switch program has made at the time `now`; f.Port is its egress port.
// cause is the received frame that led to it, nil means none. Made returns false if there is no room
// for the frame. Due gives it to the link.
func (s *Switch) Made(now clock.Time, f packetio.Frame, cause []byte) bool {
	return s.waiting.add(s.box.Depart(now, f.Data, cause), leaving, f)
}

// Forget removes the frames that wait for a port, whose host is gone. Another host can have the port then.
func (s *Switch) Forget(port int) {
	s.waiting.forget(port)
	if port < len(s.ports) {
		s.ports[port].queued = 0
	}
}

// Deadline returns when Due must be called next.
func (s *Switch) Deadline() clock.Time { return s.waiting.next() }

// Due appends the frames that have crossed their link to out. It calls full for each frame whose
// link's queue is full, which is dropped.
func (s *Switch) Due(now clock.Time, out *packetio.Batch, full func(f packetio.Frame)) {
	for s.waiting.next() <= now {
		e := s.waiting.pop()
		p := s.port(e.frame.Port)
		switch {
		case e.stage == onLine:
			p.queued--
			s.waiting.give(e, out)
		case p.queued > s.queue:
			full(e.frame)
			s.waiting.keep(e)
		default:
			p.queued++
			s.waiting.push(e, p.line.Send(e.at, len(e.frame.Data)), onLine)
		}
	}
}

// port returns the direction of the link to port i. Links of guests are added while the switch runs.
func (s *Switch) port(i int) *port {
	for len(s.ports) <= i {
		s.ports = append(s.ports, port{line: cost.NewLine(s.link)})
	}
	return &s.ports[i]
}

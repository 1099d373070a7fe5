package pipeline

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Egresser is a Program that also decides about the frames that leave the switch, of any protocol,
// so that it can queue them.
type Egresser interface {
	Program
	// Egress is called for each frame that leaves through a port, except those of Ctx.Transmit. The
	// program returns false to let the frame leave now. It returns true if it has taken the frame:
	// it transmits a copy, at once or later, or drops the frame (Ctx.Drop). Egress may be called
	// within other calls of the program, also within its own calls of Ctx.Emit.
	Egress(c *Ctx, port int, f packetio.Frame) bool
	// Queued returns the ports with queues. The switch calls Queued once, and Egress only for
	// frames to these ports. The program owns the result, and changes it whenever a queue comes or
	// goes.
	Queued() *QueuedPorts
}

// QueuedPorts lists the queues of a program at each port, in the order in which they were added. A
// port has several queues while frames of an earlier queue are left: these frames leave first, and
// new frames go to the newest queue. So frames keep their order.
type QueuedPorts struct {
	ports [][]uint32 // the numbers of the queues at each port
	last  uint32     // the number of the newest queue
}

// Place is the place of a queue among the queues of a port. The zero value is that of a queue that
// has left.
type Place struct {
	in     *QueuedPorts
	port   int
	number uint32
}

// Add adds a queue to a port, as its newest one.
func (q *QueuedPorts) Add(port int) Place {
	for len(q.ports) <= port {
		q.ports = append(q.ports, nil)
	}
	q.last++
	q.ports[port] = append(q.ports[port], q.last)
	return Place{q, port, q.last}
}

// Has reports whether a port has a queue.
func (q *QueuedPorts) Has(port int) bool { return port < len(q.ports) && len(q.ports[port]) > 0 }

// Oldest reports whether no earlier queue of the port is left, so that this queue may transmit.
func (p Place) Oldest() bool { return p.in == nil || p.in.ports[p.port][0] == p.number }

// Newest reports whether the queue takes the new frames of the port.
func (p Place) Newest() bool {
	if p.in == nil {
		return false
	}
	list := p.in.ports[p.port]
	return list[len(list)-1] == p.number
}

// Leave removes the queue from its port. A second call does nothing.
func (p *Place) Leave() {
	if p.in != nil {
		list := &p.in.ports[p.port]
		*list = slices.DeleteFunc(*list, func(n uint32) bool { return n == p.number })
	}
	p.in = nil
}

// unqueued is the empty QueuedPorts of a program without queues.
var unqueued = new(QueuedPorts)

// program is the program of a switch, with what it decides besides RoCEv2 packets: about frames that
// leave as an Egresser, about frames that come in as an Ingresser, and about damaged frames as a Guard.
type program struct {
	Program
	spec    Spec
	egress  Egresser     // the program if it decides about frames that leave; otherwise nil
	queued  *QueuedPorts // the ports at which the program queues frames that leave
	ingress Ingresser    // the program if it decides about frames that come in; otherwise nil
	taken   *MarkedPorts // the ports at which the program decides about frames that come in
	guard   guard
}

// load returns what a switch keeps of a program. A program that is no Egresser has no queues; one that
// is no Ingresser decides about arriving frames at no port.
func load(p Program) program {
	l := program{Program: p, spec: p.Spec(), queued: unqueued, taken: unmarked}
	if l.egress, _ = p.(Egresser); l.egress != nil {
		l.queued = l.egress.Queued()
	}
	if l.ingress, _ = p.(Ingresser); l.ingress != nil {
		l.taken = l.ingress.Taken()
	}
	l.guard.program, _ = p.(Guard)
	return l
}

// kept asks the program whether it keeps a frame that is about to leave.
func (c *Ctx) kept(to int, f packetio.Frame) bool {
	s := c.s
	note, from := s.notes.text, s.notes.from
	s.notes.text, s.notes.from = "", -1
	kept := s.program.egress.Egress(c, to, f)
	s.notes.text, s.notes.from = note, from
	return kept
}

// Transmit sends a frame that the program has kept (Egresser) out of a port. It copies f. The
// program is not asked again. note explains the frame in captures. The result is false if the port
// is down; then the frame is dropped.
func (c *Ctx) Transmit(port int, f packetio.Frame, note string) bool {
	s := c.s
	if port < 0 || port >= len(s.ports) || !s.ports[port].up {
		s.dropped(-1, ReasonPortDown, f.Packets())
		return false
	}
	f.Data = append(s.out.Alloc(len(f.Data)), f.Data...)
	before, queued := s.notes.text, s.program.queued
	s.notes.text, s.program.queued = note, unqueued
	s.send(-1, port, f)
	s.notes.text, s.program.queued = before, queued
	return true
}

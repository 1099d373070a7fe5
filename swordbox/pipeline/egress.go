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

// load sets the program. A program that is no Egresser has no queues; one that is no Ingresser
// decides about arriving frames at no port.
func (s *Switch) load(p Program) {
	s.program, s.spec, s.queued = p, p.Spec(), unqueued
	if s.egress, _ = p.(Egresser); s.egress != nil {
		s.queued = s.egress.Queued()
	}
	s.guard.program, _ = p.(Guard)
	s.Marks.marker, _ = p.(Marker)
	s.taken = unmarked
	if s.ingress, _ = p.(Ingresser); s.ingress != nil {
		s.taken = s.ingress.Taken()
	}
}

// kept asks the program whether it keeps a frame that is about to leave.
func (c *Ctx) kept(to int, f packetio.Frame) bool {
	s := c.s
	note, from := s.note, s.from
	s.note, s.from = "", -1
	kept := s.egress.Egress(c, to, f)
	s.note, s.from = note, from
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
	before, queued := s.note, s.queued
	s.note, s.queued = note, unqueued
	s.send(-1, port, f)
	s.note, s.queued = before, queued
	return true
}

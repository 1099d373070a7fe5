package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Egresser is a Program that also decides about the frames that leave the switch, of any protocol,
// so that it can queue them.
type Egresser interface {
	Program
	// Egress is called for each frame that leaves through a port, except those of Ctx.Transmit. The
	// program returns false to let the frame leave now. It returns true if it keeps the frame: it
	// has copied it, and transmits the copy later. Egress may be called within other calls of the
	// program, also within its own calls of Ctx.Emit.
	Egress(c *Ctx, port int, f packetio.Frame) bool
	// Queued returns the ports with queues. The switch calls it once, and Egress is called only for
	// these ports, so that other frames cost nothing more. The program owns the result, and changes
	// it whenever a queue comes or goes.
	Queued() *QueuedPorts
}

// QueuedPorts counts the queues of a program at each port.
type QueuedPorts struct{ queues []int }

// Add counts one more queue at a port.
func (q *QueuedPorts) Add(port int) {
	for len(q.queues) <= port {
		q.queues = append(q.queues, 0)
	}
	q.queues[port]++
}

// Remove counts one queue less at a port, to which Add has been applied.
func (q *QueuedPorts) Remove(port int) { q.queues[port]-- }

// Has reports whether a port has a queue.
func (q *QueuedPorts) Has(port int) bool { return port < len(q.queues) && q.queues[port] > 0 }

// unqueued is for programs without queues.
var unqueued = new(QueuedPorts)

// load sets the program. A program that is no Egresser has no queues.
func (s *Switch) load(p Program) {
	s.program, s.spec, s.queued = p, p.Spec(), unqueued
	if s.egress, _ = p.(Egresser); s.egress != nil {
		s.queued = s.egress.Queued()
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
	s.send(port, f)
	s.note, s.queued = before, queued
	return true
}

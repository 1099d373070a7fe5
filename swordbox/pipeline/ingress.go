package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Ingresser is a Program that also decides about the frames that come in, of any protocol, before
// the switch forwards them.
type Ingresser interface {
	Program
	// Ingress is called for each frame that comes in at a port, except those to the switch itself
	// and to groups. The program returns false to let the switch handle the frame now. It returns
	// true if it has taken the frame: it has copied the frame, and passes the copy, perhaps
	// changed, to Ctx.Resume, now or later, or drops it.
	Ingress(c *Ctx, in int, f packetio.Frame) bool
	// Taken returns the ports at which the program decides about arriving frames. The switch calls
	// Taken once, and Ingress only for frames at these ports. The program owns the result, and
	// changes it when it begins or stops deciding at a port.
	Taken() *MarkedPorts
}

// took asks the program whether it takes a frame that has come in.
func (c *Ctx) took(in int, f packetio.Frame) bool {
	dst := wire.MAC(f.Data[:6])
	return !dst.IsMulticast() && !c.s.self.owns(dst) && c.s.program.ingress.Ingress(c, in, f)
}

// resumption is a frame that the program has taken and then resumed (Ctx.Resume).
type resumption struct {
	frame  packetio.Frame
	in, to int
	note   string
}

// Resume makes the switch go on with a frame that the program has taken (Ingresser), as if it came
// in at port `in` now: at the end of the step, behind the frames that were resumed before. It
// copies f, and does not call the program's Ingress again. If `to` is not negative and the switch
// forwards the frame, it leaves through that port, whatever its destination address is. If the
// program emits a packet instead, or holds the packet first, the destination address decides the
// port. note explains the frame in captures.
func (c *Ctx) Resume(in, to int, f packetio.Frame, note string) {
	f.Data = append(c.s.out.Alloc(len(f.Data)), f.Data...)
	c.s.resumed = append(c.s.resumed, resumption{f, in, to, note})
}

// accept handles the packets of a frame that has come in.
func (s *Switch) accept(in int, f packetio.Frame, packets int) {
	switch {
	case !f.Splittable():
		s.packet(in, f, f.Data, packets, true)
	case s.program.guard.refusesWhole(f.Data):
		s.dropped(in, ReasonMalformed, packets)
	case s.program.spec.Split:
		s.apart(in, f, true)
	default:
		s.segment = f.AppendSegment(s.segment[:0], 0)
		s.packet(in, f, s.segment, packets, true)
	}
}

// goOn handles the frames that the program has passed to Ctx.Resume in this step.
func (c *Ctx) goOn() {
	s := c.s
	for i := 0; i < len(s.resumed); i++ {
		r := s.resumed[i]
		if r.note != "" {
			s.notes.add(-1, r.note)
		}
		s.parsed.packet, s.parsed.icrc, s.to = nil, icrcUnknown, r.to
		s.accept(r.in, r.frame, r.frame.Packets())
		s.to = -1
	}
	clear(s.resumed)
	s.resumed = s.resumed[:0]
}

// MarkedPorts counts for each port the rules of a program that are about frames arriving at this
// port. The switch asks the program about frames only at ports where the count is not 0.
type MarkedPorts struct{ marks []int }

// Add counts one more rule at a port.
func (q *MarkedPorts) Add(port int) {
	for len(q.marks) <= port {
		q.marks = append(q.marks, 0)
	}
	q.marks[port]++
}

// Remove removes a rule that Add has counted at a port.
func (q *MarkedPorts) Remove(port int) { q.marks[port]-- }

// Has reports whether the count of a port is not 0.
func (q *MarkedPorts) Has(port int) bool { return port < len(q.marks) && q.marks[port] > 0 }

// unmarked is the empty MarkedPorts of a program that does not decide about arriving frames.
var unmarked = new(MarkedPorts)

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
}

// egresser returns p if it decides about frames that leave; otherwise nil.
func egresser(p Program) Egresser {
	e, _ := p.(Egresser)
	return e
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
	before := s.note
	s.note = note
	s.transmit(port, f)
	s.note = before
	return true
}

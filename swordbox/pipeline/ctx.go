package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxEmit bounds the packets that a program makes in one step.
const maxEmit = 1024

// Ctx is what a program may do besides its verdict. It is valid during one call of the program. What the program
// emits or releases leaves in the order of the calls, and before the packet that the verdict is about.
type Ctx struct {
	// Now is the time of the step.
	Now clock.Time
	s   *Switch
}

// Ports is the number of ports of the switch.
func (c *Ctx) Ports() int { return len(c.s.ports) }

// Observed reports whether somebody captures: only then is a Verdict's Note worth formatting.
func (c *Ctx) Observed() bool { return c.s.observed }

// Lookup returns the port behind an address, or -1 if it is unknown.
func (c *Ctx) Lookup(mac wire.MAC) int { return c.s.fdb.lookup(c.Now, mac) }

// Allowed reports whether a frame from a port may go to an address, as far as partitions go. What a program emits goes
// everywhere; so it asks, if it takes a frame and sends another one instead.
func (c *Ctx) Allowed(in int, to wire.MAC) bool {
	if c.s.ports[in].blocked == nil {
		return true
	}
	port := c.Lookup(to)
	return port < 0 || c.s.allowed(in, port)
}

// Emit sends a packet that the program made, by its destination address. f is encoded at once, with lengths and
// ICRC. note explains it in captures. The result is false if the packet was dropped here.
func (c *Ctx) Emit(f *wire.Frame, note string) bool { return c.emit(f, -1, note) }

// EmitTo is Emit out of a port.
func (c *Ctx) EmitTo(port int, f *wire.Frame, note string) bool { return c.emit(f, port, note) }

func (c *Ctx) emit(f *wire.Frame, port int, note string) bool {
	s := c.s
	if s.emitted++; s.emitted > maxEmit {
		s.dropped(-1, ReasonEmitLimit, 1)
		return false
	}
	n := f.Len()
	if n > maxHeldFrame {
		s.dropped(-1, ReasonTooLong, 1)
		return false
	}
	s.counters.Emitted++
	if s.note = note; s.observed && note == "" {
		s.note = "made by " + s.spec.Name
	}
	ok := s.forward(-1, port, packetio.Frame{Data: s.sealer.AppendFrame(s.out.Alloc(n), f)})
	s.note = ""
	return ok
}

// Hold keeps a copy of p until the program releases or discards it, or until the deadline: then it goes on its way
// as it came, as if the verdict had been Forward. clock.Never holds it until the program acts. Return the result as
// the verdict; its ID names the packet. With no room it is a Drop.
func (c *Ctx) Hold(p *Parsed, until clock.Time) Verdict {
	if len(p.Raw.Data) > maxHeldFrame {
		return Drop(ReasonTooLong)
	}
	id := c.s.held.add(p.Ingress, p.Raw.Data, until)
	if id == 0 {
		return Drop(ReasonHoldFull)
	}
	c.s.counters.Held++
	return Verdict{Action: ActHold, ID: id}
}

// Holding reports whether the packet is still held.
func (c *Ctx) Holding(id HoldID) bool { return c.s.held.get(id) != nil }

// Release sends a held packet on as it came, or as f if that is not nil. It reports whether it was still held.
func (c *Ctx) Release(id HoldID, f *wire.Frame, note string) bool {
	h := c.s.held.get(id)
	if h == nil {
		return false
	}
	if c.s.note = note; c.s.observed && note == "" {
		c.s.note = "released by " + c.s.spec.Name
	}
	c.s.from = h.ingress
	if f != nil {
		c.s.rewrite(h.ingress, -1, c.s.sealer.Check(h.data), f)
	} else {
		c.s.release(h)
	}
	c.s.note, c.s.from = "", -1
	c.s.held.remove(id)
	return true
}

// Discard drops a held packet. It reports whether it was still held.
func (c *Ctx) Discard(id HoldID, r Reason) bool {
	h := c.s.held.get(id)
	if h == nil {
		return false
	}
	c.s.dropped(h.ingress, r, 1)
	c.s.held.remove(id)
	return true
}

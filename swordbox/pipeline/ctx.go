package pipeline

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxEmit bounds the packets that a program may emit in one step.
const maxEmit = 1024

// Ctx offers what a program may do besides returning a verdict. It is valid during one call of the
// program. The switch sends packets that the program emits or releases in the order of the calls,
// before the packet of the verdict.
type Ctx struct {
	// Now is the time of the step.
	Now      clock.Time
	s        *Switch
	follower Follower // nil means none
}

func (c *Ctx) Ports() int { return len(c.s.ports) }

// Observed reports whether a capture runs, or a Follower traces requests. Only then does a program
// format the Note of a Verdict.
func (c *Ctx) Observed() bool { return c.s.notes.on }

// Lookup returns the port at which the host with an address is; -1 means that the switch does not
// know it.
func (c *Ctx) Lookup(mac wire.MAC) int {
	if port, ok := c.s.fdb.trunks.hop(mac, c.s.parsed.packet); ok {
		return port
	}
	return c.s.fdb.lookup(c.Now, mac)
}

// Allowed reports whether partitions let a frame that came in at port `in` go to the address `to`.
// Partitions do not stop frames that a program emits. So a program that consumes a frame and emits
// another one instead must ask first.
func (c *Ctx) Allowed(in int, to wire.MAC) bool {
	if c.s.ports[in].blocked == nil && c.s.fdb.groups == nil {
		return true
	}
	port := c.Lookup(to)
	return port < 0 || c.s.ports.allowed(in, port) && !c.s.fdb.trunks.parted(c.s.fdb.groups, in, port, c.s.parsed.packet)
}

// DelayedUntil returns the time until which injected faults delay frames that the switch has
// already sent; it is in the past if there is no such frame.
func (c *Ctx) DelayedUntil() clock.Time { return c.s.delayedUntil }

// Emit sends a packet that the program has made. Its destination address decides the port. Emit
// encodes f at once, with lengths and ICRC; while the program handles a packet that is not encoded, it
// copies f and its payload instead. note explains the packet in captures. The result is
// false if the packet was dropped.
func (c *Ctx) Emit(f *wire.Frame, note string) bool {
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
	s.decisions.makes(s.program.spec.Name, f)
	if s.notes.text = note; s.notes.on && note == "" {
		s.notes.text = "made by " + s.program.spec.Name
	}
	if s.notes.on {
		s.notes.text += s.decisions.author()
	}
	s.decisions.done()
	ok := c.emit(f, n)
	s.notes.text = ""
	return ok
}

// EmitsLeft returns how many packets the program may still emit in this step. The switch drops
// further packets. So a program that can delay packets asks first, and returns a Deadline in the
// past to continue in the next step.
func (c *Ctx) EmitsLeft() int { return max(0, maxEmit-c.s.emitted) }

// Hold keeps a copy of p until the program releases or discards it. At the time `until`, the switch
// forwards it unchanged; clock.Never: it is held until the program acts. The program returns the
// result as its verdict. The verdict's ID names the packet in later calls. If there is no room, or
// p is too long, the result is a Drop.
func (c *Ctx) Hold(p *Parsed, until clock.Time) Verdict {
	data := p.Bytes()
	if len(data) > maxHeldFrame {
		return Drop(ReasonTooLong)
	}
	id := c.s.held.add(p.Ingress, data, until)
	if id == 0 {
		return Drop(ReasonHoldFull)
	}
	c.s.counters.Held++
	return Verdict{Action: ActHold, ID: id}
}

// Holding reports whether the switch still holds the packet.
func (c *Ctx) Holding(id HoldID) bool { return c.s.held.get(id) != nil }

// Release forwards a held packet unchanged. If f is not nil, Release sends f instead, or drops the
// packet if its ICRC is wrong. It reports whether the switch held the packet.
func (c *Ctx) Release(id HoldID, f *wire.Frame, note string) bool {
	h := c.s.held.get(id)
	if h == nil {
		return false
	}
	if c.s.notes.text = note; c.s.notes.on && note == "" {
		c.s.notes.text = "released by " + c.s.program.spec.Name
	}
	c.s.notes.from = h.ingress
	if f != nil {
		c.s.rewrite(h.ingress, c.s.parsed.sealer.Check(h.data), f, nil)
	} else {
		c.s.release(h)
	}
	c.s.notes.text, c.s.notes.from = "", -1
	c.s.held.remove(id)
	return true
}

// Drop counts the packets of f as dropped for the reason r, notes the decision, and does nothing else. A program calls it
// when it drops a frame that it has taken (Ingresser) or kept (Egresser). port is the port at which
// the frame arrived, or through which it was to leave.
func (c *Ctx) Drop(port int, r Reason, f packetio.Frame) {
	c.s.decisions.dropsFrame(c.s.program.spec.Name, port, r, f.Data, f.Packets())
	c.s.decisions.done() // the program says itself why
	c.s.CountDrop(port, r, f.Packets())
}

// Discard drops a held packet. It reports whether the switch held the packet.
func (c *Ctx) Discard(id HoldID, r Reason) bool {
	h := c.s.held.get(id)
	if h == nil {
		return false
	}
	c.s.decisions.dropsFrame(c.s.program.spec.Name, h.ingress, r, h.data, 1)
	c.s.dropped(h.ingress, r, 1)
	c.s.decisions.done()
	c.s.held.remove(id)
	return true
}

// RequestID names a request packet: the server and the queue pair to which it goes, and its PSN.
type RequestID struct {
	Server netip.Addr
	QPN    wire.QPN
	PSN    wire.PSN
}

// Follower traces requests through the switch. The switch calls it for changes and drops of packets
// that the frames at the ports do not show. Programs report changes only while Ctx.Observed is
// true, so a switch with a follower begins with Observe(true). A follower must not call the switch.
type Follower interface {
	// Moved is called before a request leaves under another queue pair or PSN than it had. from is
	// what the client sent.
	Moved(from, to RequestID)
	// Dropped is called when the switch drops a packet.
	Dropped()
}

// Moved tells the follower that a request leaves under another queue pair or PSN. A program calls
// it only if Observed is true.
func (c *Ctx) Moved(from, to RequestID) {
	if f := c.follower; f != nil {
		f.Moved(from, to)
	}
}

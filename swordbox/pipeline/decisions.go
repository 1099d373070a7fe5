package pipeline

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// KeptDecisions is how many decisions a switch remembers.
const KeptDecisions = 256

// Decision is a RoCEv2 packet that the program has dropped, or a negative acknowledgment that it has made.
type Decision struct {
	At      clock.Time
	Program string
	// Rule is the ID of the rule under which the program handled the packet; "" if there is none, or the
	// program did not say (Ctx.Under).
	Rule string
	// Reason is why the packet was dropped; "" for a packet that the program made.
	Reason Reason
	// Ingress is the port at which the dropped packet arrived, or through which it was to leave (Ctx.Drop). Of a packet
	// that the program made, it is the port of the packet that it answers, or -1 if a timer made it.
	Ingress  int
	Packets  int
	Src, Dst netip.Addr
	Opcode   wire.Opcode
	Syndrome wire.Syndrome // of an acknowledgment
	DestQP   wire.QPN
	PSN      wire.PSN
}

// decisions has the newest decisions, with and without a capture. The zero value is
// empty. It belongs to the goroutine of the switch.
type decisions struct {
	ring  []Decision
	count uint64
	rule  string // Ctx.Under
	by    string // names the program and the rule in the note about the packet at hand, if the switch is observed
}

// begin is called before the program handles a packet.
func (d *decisions) begin() { d.rule = "" }

func (d *decisions) add(x Decision) {
	if d.ring == nil {
		d.ring = make([]Decision, KeptDecisions)
	}
	d.ring[d.count%KeptDecisions] = x
	d.count++
}

// of fills in what f says.
func (x Decision) of(f *wire.Frame) Decision {
	x.Src, x.Dst, x.Opcode, x.DestQP, x.PSN = f.SrcAddr(), f.DstAddr(), f.BTH.Opcode, f.BTH.DestQP, f.BTH.PSN
	if f.BTH.Opcode.Has(wire.HasAETH) {
		x.Syndrome = f.AETH.Syndrome
	}
	return x
}

// decided notes that the program has dropped p.
func (s *Switch) decided(p *Parsed, r Reason) {
	s.decide(Decision{Reason: r, Ingress: p.Ingress, Packets: p.Packets}.of(&p.Frame))
}

// decide notes a decision of the program that runs, about what it does now.
func (s *Switch) decide(x Decision) {
	x.At, x.Program, x.Rule = s.ctx.Now, s.spec.Name, s.decisions.rule
	s.decisions.add(x)
	if s.observed && x.Program != "" {
		s.decisions.by = " (program " + x.Program + ")"
		if x.Rule != "" {
			s.decisions.by = " (program " + x.Program + ", rule " + x.Rule + ")"
		}
	}
}

// decidedFrame notes that the program has dropped a frame that it had kept or taken, if it is a RoCEv2 packet.
func (s *Switch) decidedFrame(ingress int, r Reason, data []byte, packets int) {
	var f wire.Frame
	if wire.ParseFrame(data, &f) != nil {
		return
	}
	s.decide(Decision{Reason: r, Ingress: ingress, Packets: packets}.of(&f))
}

// emits notes a packet that the program has made, if it is a negative acknowledgment.
func (s *Switch) emits(f *wire.Frame) {
	if op := f.BTH.Opcode; op.Plain() != wire.RCAck || f.AETH.Syndrome.IsAck() {
		return
	}
	s.decide(Decision{Ingress: s.handled, Packets: 1}.of(f))
}

// Under says under which rule the program handles the present packet, for Switch.Decisions.
func (c *Ctx) Under(rule string) { c.s.decisions.rule = rule }

// Decisions returns how many packets programs have dropped or refused since the switch was made, and the
// newest of these decisions, oldest first, at most KeptDecisions.
func (s *Switch) Decisions() (total uint64, list []Decision) {
	d := &s.decisions
	for n := d.count - min(d.count, KeptDecisions); n < d.count; n++ {
		list = append(list, d.ring[n%KeptDecisions])
	}
	return d.count, list
}

package pipeline

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// KeptDecisions is how many decisions are remembered.
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

// Decisions has the newest decisions of the programs of a switch, with and without a capture. The zero value is empty.
// It belongs to the goroutine of the switch.
type Decisions struct {
	ring  []Decision
	count uint64

	now  clock.Time
	rule string // Ctx.Under
	in   int    // the port of the packet that the program handles; -1: none
	by   string // names the program and the rule of the newest decision, for the note about it
}

// Newest returns how many packets programs have dropped or refused, and the newest of these decisions, oldest first,
// at most KeptDecisions. Of a nil value it returns none.
func (d *Decisions) Newest() (total uint64, list []Decision) {
	if d == nil {
		return 0, nil
	}
	for n := d.count - min(d.count, KeptDecisions); n < d.count; n++ {
		list = append(list, d.ring[n%KeptDecisions])
	}
	return d.count, list
}

// begin is called at the begin of a step, and before the program handles a packet of port in.
func (d *Decisions) begin(now clock.Time, in int) { d.now, d.in, d.rule, d.by = now, in, "", "" }

// add notes a decision about the packet f.
func (d *Decisions) add(x Decision, f *wire.Frame) {
	x.At, x.Rule = d.now, d.rule
	x.Src, x.Dst, x.Opcode, x.DestQP, x.PSN = f.SrcAddr(), f.DstAddr(), f.BTH.Opcode, f.BTH.DestQP, f.BTH.PSN
	if f.BTH.Opcode.Has(wire.HasAETH) {
		x.Syndrome = f.AETH.Syndrome
	}
	if d.ring == nil {
		d.ring = make([]Decision, KeptDecisions)
	}
	d.ring[d.count%KeptDecisions] = x
	d.count++
	d.by = x.Program
}

// author returns " (program swordbox, rule r1)" behind a decision, and otherwise "".
func (d *Decisions) author() string {
	switch by := d.by; {
	case by == "":
		return ""
	case d.rule != "":
		return " (program " + by + ", rule " + d.rule + ")"
	default:
		return " (program " + by + ")"
	}
}

// done ends what author says.
func (d *Decisions) done() { d.by = "" }

// drops notes that a program has dropped p.
func (d *Decisions) drops(program string, p *Parsed, r Reason) {
	d.add(Decision{Program: program, Reason: r, Ingress: p.Ingress, Packets: p.Packets}, &p.Frame)
}

// dropsFrame notes that a program has dropped a frame that it had kept or taken, if it is a RoCEv2 packet.
func (d *Decisions) dropsFrame(program string, ingress int, r Reason, data []byte, packets int) {
	var f wire.Frame
	if wire.ParseFrame(data, &f) == nil {
		d.add(Decision{Program: program, Reason: r, Ingress: ingress, Packets: packets}, &f)
	}
}

// makes notes a packet that a program has made, if it is a negative acknowledgment.
func (d *Decisions) makes(program string, f *wire.Frame) {
	if f.BTH.Opcode.Plain() == wire.RCAck && !f.AETH.Syndrome.IsAck() {
		d.add(Decision{Program: program, Ingress: d.in, Packets: 1}, f)
	}
}

// Under says under which rule the program handles the present packet, for Decisions.
func (c *Ctx) Under(rule string) { c.s.decisions.rule = rule }

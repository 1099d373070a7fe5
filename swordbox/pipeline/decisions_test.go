package pipeline

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The switch remembers what its program has dropped and refused, with the rule and without being observed.
func TestDecisions(t *testing.T) {
	r, p := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		switch p.BTH.PSN {
		case 1:
			c.Under("r1")
			return Drop("gap")
		case 2:
			return Drop("hundredth READ")
		case 3:
			c.Under("r2")
			p.BTH.Opcode, p.AETH.Syndrome = wire.RCAck, wire.NakRemoteAccess
			c.Emit(&p.Frame, "")
			return Consume()
		case 4:
			p.BTH.Opcode, p.AETH.Syndrome = wire.RCAck, wire.AckNoCredits
			c.Emit(&p.Frame, "")
			return Consume()
		}
		return Forward()
	})
	r.program.spec.Name, p.spec.Name = "test", "test"
	r.Observe(false)
	for psn := range wire.PSN(6) {
		r.send(0, roce(0, 1, psn, "x"))
	}
	total, list := r.decisions.Newest()
	if total != 3 || len(list) != 3 {
		t.Fatalf("%d: %+v", total, list)
	}
	for i, want := range []struct {
		rule   string
		reason Reason
		psn    wire.PSN
		op     wire.Opcode
	}{{"r1", "gap", 1, wire.RCSendOnly}, {"", "hundredth READ", 2, wire.RCSendOnly}, {"r2", "", 3, wire.RCAck}} {
		d := list[i]
		if d.Program != "test" || d.Rule != want.rule || d.Reason != want.reason || d.PSN != want.psn || d.Opcode != want.op || d.Ingress != 0 || d.Packets != 1 {
			t.Errorf("decision %d: %+v, want %+v", i, d, want)
		}
	}
	if list[2].Syndrome != wire.NakRemoteAccess {
		t.Errorf("%+v", list[2])
	}
}

// Packets that the program had kept count, too.
func TestDecisionAboutHeldPacket(t *testing.T) {
	var id HoldID
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		if p.BTH.PSN == 1 {
			v := c.Hold(p, clock.Never)
			id = v.ID
			return v
		}
		c.Under("r9")
		c.Discard(id, "given up")
		return Forward()
	})
	r.send(0, roce(0, 1, 1, "x"))
	r.send(1, roce(1, 0, 2, "x"))
	r.Step(0, &r.out, func(c *Ctx) {
		c.Drop(2, "taken", packetio.Frame{Data: roce(0, 1, 3, "x")})
		c.Drop(2, "taken", packetio.Frame{Data: plain(mac(0), mac(1))})
	})
	total, list := r.decisions.Newest()
	if total != 2 || list[0].PSN != 1 || list[0].Reason != "given up" || list[0].Ingress != 0 || list[0].Rule != "r9" ||
		list[1].PSN != 3 || list[1].Ingress != 2 || list[1].Rule != "" {
		t.Errorf("%d: %+v", total, list)
	}
}

// It remembers the newest, and counts all.
func TestDecisionsAreBounded(t *testing.T) {
	r, _ := withProgram(t, func(*Ctx, *Parsed) Verdict { return Drop("all") })
	for psn := range wire.PSN(KeptDecisions + 5) {
		r.send(0, roce(0, 1, psn, "x"))
	}
	total, list := r.decisions.Newest()
	if total != KeptDecisions+5 || len(list) != KeptDecisions || list[0].PSN != 5 || list[len(list)-1].PSN != KeptDecisions+4 {
		t.Errorf("%d: %d from %d on", total, len(list), list[0].PSN)
	}
}

// A capture names the program and the rule in what it says of a dropped packet, and of a refusal.
func TestDecisionsInNotes(t *testing.T) {
	r, p := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		switch p.BTH.PSN {
		case 1:
			c.Under("r1")
			return Drop("gap")
		case 2:
			p.BTH.Opcode, p.AETH.Syndrome = wire.RCAck, wire.NakRemoteAccess
			c.Emit(&p.Frame, "refused")
			return Consume()
		}
		c.Emit(&p.Frame, "instead")
		return Consume()
	})
	r.program.spec.Name, p.spec.Name = "test", "test"
	for psn, want := range map[wire.PSN]string{
		1: "in dropped by the switch: gap (program test, rule r1)", 2: "out refused (program test); in taken by test", 3: "out instead; in taken by test",
	} {
		r.send(0, roce(0, 1, psn, "x"))
		if got := r.notes(); got != want {
			t.Errorf("PSN %d: %q, want %q", psn, got, want)
		}
	}
}

package swordbox

import (
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Widths in bits of the fields of tables and registers.
const (
	addrBits  = 128
	qpnBits   = 24
	psnBits   = 24
	macBits   = 48
	portBits  = 8 // number of a port of the switch
	timeBits  = 32
	flowKey   = 2*addrBits + qpnBits
	ruleValue = 8 + 1 + 6 + 8 // number of the rule, mode, shard bits, depth
)

// Spec declares the state of connection tracking and of the handlers, and what they need of a chip.
// A tracked flow is a table entry, which gives the flow's number, and registers with this number as
// index.
func (p *Program) Spec() pipeline.Spec {
	s := pipeline.Spec{
		Name: Name, Doc: "tracks connections and serialises the requests that rules select",
		Modes: []string{rules.Published.String(), rules.Hardened.String()},
		Parts: []pipeline.Part{p.tracking()},
	}
	for _, h := range p.parts.all {
		part, kind := h.Spec(), h.Kind()
		part.Name, part.Mode = kind.Name, kind.Mode.String()
		s.Parts = append(s.Parts, part)
	}
	return s
}

// tracking declares the state of connection tracking, which the program needs in all modes.
func (p *Program) tracking() pipeline.Part {
	flows, learning := p.track.MaxFlows(), p.track.MaxLearning()
	t := pipeline.Part{
		Name: "tracking",
		Tables: []pipeline.TableSpec{
			{Name: "flows", KeyBits: flowKey, ValueBits: 16, Entries: flows, Learned: true},
			// The address of a host, and the port at which its packets must arrive.
			{Name: "hosts", KeyBits: addrBits, ValueBits: portBits + 1, Entries: p.track.MaxHosts(pipeline.MaxPorts), Learned: true},
			// Server, key, and the range as two numbers, for a ternary or range match.
			{Name: "rules", KeyBits: addrBits + 32 + 2*64, ValueBits: ruleValue, Entries: rules.MaxRules},
		},
		Registers: []pipeline.RegisterSpec{
			// Expected, acknowledged, first and highest PSN.
			{Name: "flow psn", Width: 4 * psnBits, Entries: flows},
			// State, flags, MTU, peer, generation.
			{Name: "flow state", Width: 3 + 8 + 3 + 14 + 32, Entries: flows},
			// How to reach the responder: MAC addresses, UDP source port, P_Key, ingress port.
			{Name: "flow path", Width: 2*macBits + 16 + 16 + portBits, Entries: flows},
			{Name: "flow last", Width: timeBits, Entries: flows},
			// For a flow whose other direction is not known: 32 runs of requests (PSN, length,
			// kind), and a bit for each flow that cannot be the other direction. A chip would leave
			// this to its control plane.
			{Name: "learning", Width: 32*(psnBits+24+2) + learning, Entries: learning},
		},
		Needs: []pipeline.Need{{Kind: pipeline.NeedTimer, What: "connections that are forgotten, or kept from being reused", Count: flows}},
	}
	if p.cfg.Own != nil {
		t.Registers = append(t.Registers, pipeline.RegisterSpec{Name: "record", Width: 2*addrBits + 2*qpnBits + psnBits, Entries: flows / 2})
	}
	return t
}

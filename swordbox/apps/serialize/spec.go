package serialize

import (
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Widths in bits of what the tables and registers hold.
const (
	addrBits  = 128
	qpnBits   = 24
	psnBits   = 24
	macBits   = 48
	portBits  = 8 // of the switch
	timeBits  = 32
	rowKey    = 2*addrBits + qpnBits
	ruleValue = 8 + 1 + 6 + 8 // number of the rule, mode, shard bits, depth
)

// Spec declares the tables and registers of connection tracking and of the machines that are there. A row of tracking is a
// table entry that gives the row's number, and registers by that number.
func (p *Program) Spec() pipeline.Spec {
	rows, learning := p.track.MaxRows(), p.track.MaxLearning()
	s := pipeline.Spec{
		Name: Name, Doc: "tracks connections and serialises the requests that rules select",
		Tables: []pipeline.TableSpec{
			{Name: "rows", KeyBits: rowKey, ValueBits: 16, Entries: rows},
			// A host's address to its port: who may speak for it.
			{Name: "hosts", KeyBits: addrBits, ValueBits: portBits + 1, Entries: p.track.MaxHosts(pipeline.MaxPorts)},
			// Server, key, and the range as two numbers, which a ternary or range match compares.
			{Name: "rules", KeyBits: addrBits + 32 + 2*64, ValueBits: ruleValue, Entries: rules.MaxRules},
		},
		Registers: []pipeline.RegisterSpec{
			// Expected, acknowledged, first and highest PSN.
			{Name: "row psn", Width: 4 * psnBits, Entries: rows},
			// State, flags, MTU, peer, generation.
			{Name: "row state", Width: 3 + 8 + 3 + 14 + 32, Entries: rows},
			// How to reach the responder: MAC addresses, UDP source port, P_Key, ingress port.
			{Name: "row path", Width: 2*macBits + 16 + 16 + portBits, Entries: rows},
			{Name: "row last", Width: timeBits, Entries: rows},
			// Rows without a peer: 32 runs of requests (PSN, length, kind), and a bit for each row that is ruled out. A chip
			// would leave this to its control plane.
			{Name: "learning", Width: 32*(psnBits+24+2) + learning, Entries: learning},
		},
	}
	if p.cfg.Own != nil {
		s.Registers = append(s.Registers, pipeline.RegisterSpec{Name: "record", Width: 2*addrBits + 2*qpnBits + psnBits, Entries: rows / 2})
	}
	for _, m := range p.machines {
		tables, registers := m.Spec()
		s.Tables = append(s.Tables, tables...)
		s.Registers = append(s.Registers, registers...)
	}
	return s
}

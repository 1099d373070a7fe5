package cloversteer

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Two clients append to node 0x1000: the second append is steered to the node of the first one. When
// requests come again, they go where their first copies went, and the tail does not move.
func TestRetransmissionGoesWhereTheFirstCopyWent(t *testing.T) {
	rule := rules.Rule{Server: netip.MustParseAddr("10.0.0.1"), Action: rules.Steer, Mode: rules.Published}
	set, err := rules.NewSet([]rules.Rule{rule})
	if err != nil {
		t.Fatal(err)
	}
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: nothing{}})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{})
	m.SetRules(set)
	var out packetio.Batch
	a, b := &conntrack.Flow{}, &conntrack.Flow{}
	send := func(flow *conntrack.Flow, class conntrack.Class, op wire.Opcode, psn wire.PSN, va uint64) uint64 {
		p := &pipeline.Parsed{}
		p.BTH.Opcode, p.BTH.PSN, p.AtomicETH.VA, p.RETH = op, psn, va, wire.RETH{VA: va, Length: 128}
		p.Payload = make([]byte, 128)
		layout.Hardened.PutNode(p.Payload, layout.Header(1), 7, nil)
		sw.Step(0, &out, func(c *pipeline.Ctx) {
			m.Request(c, conntrack.Seen{Flow: flow, Class: class, Span: 1}, &rule, p)
		})
		if op == wire.RCCmpSwap {
			return p.AtomicETH.VA
		}
		return p.RETH.VA
	}
	send(a, conntrack.New, wire.RCWriteOnly, 1, 0x1000)
	for i, c := range []struct {
		flow  *conntrack.Flow
		class conntrack.Class
		op    wire.Opcode
		psn   wire.PSN
		va    uint64
		want  uint64
	}{
		{a, conntrack.New, wire.RCWriteOnly, 2, 0x2000, 0x2000},
		{b, conntrack.New, wire.RCWriteOnly, 1, 0x3000, 0x3000},
		{a, conntrack.New, wire.RCCmpSwap, 3, 0x1000, 0x1000},
		{b, conntrack.New, wire.RCCmpSwap, 2, 0x1000, 0x2000},
		{b, conntrack.New, wire.RCReadRequest, 3, 0x1000, 0x3000},
		{a, conntrack.New, wire.RCWriteOnly, 4, 0x4000, 0x4000},
		{a, conntrack.New, wire.RCCmpSwap, 5, 0x1000, 0x3000},
		{a, conntrack.Duplicate, wire.RCCmpSwap, 3, 0x1000, 0x1000},
		{b, conntrack.Duplicate, wire.RCCmpSwap, 2, 0x1000, 0x2000},
		{b, conntrack.Duplicate, wire.RCReadRequest, 3, 0x1000, 0x3000},
		{b, conntrack.Duplicate, wire.RCReadRequest, 3, 0x1080, 0x1080},              // not what came before
		{b, conntrack.New, wire.RCReadRequest, 4, 0x1000, 0x4000},                    // the tail
		{b, conntrack.New, wire.RCReadRequest, 2 + remembered, 0x4000, 0x4000},       // takes the place of the append
		{b, conntrack.Duplicate, wire.RCCmpSwap, 2, 0x1000, 0x1000},                  // forgotten
		{b, conntrack.Duplicate, wire.RCReadRequest, 2 + remembered, 0x4000, 0x4000}, // was not steered
	} {
		if va := send(c.flow, c.class, c.op, c.psn, c.va); va != c.want {
			t.Errorf("step %d: %v PSN %d to %#x goes to %#x, want %#x", i, c.op, c.psn, c.va, va, c.want)
		}
	}
	if s := m.Stats(); s.Repeated != 6 || s.Reapplied != 2 {
		t.Errorf("%d retransmissions, %d of them steered, want 6 and 2", s.Repeated, s.Reapplied)
	}
}

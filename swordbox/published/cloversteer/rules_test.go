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

// A client appends node 0x2000 to node 0x1000 of a key, then the rules change and come back, then a
// client reads node 0x1000. If the published rules of action steer had other memory in between, the
// switch did not see all appends, and must not steer the READ. Other changes leave the tail.
func TestTailsWithoutARuleAreForgotten(t *testing.T) {
	server := netip.MustParseAddr("10.0.0.1")
	steer := rules.Rule{Server: server, Action: rules.Steer, Mode: rules.Published}
	read, hardened := steer, steer
	read.Steer, hardened.Mode = rules.SteerRead, rules.Hardened
	other, ranged := steer, steer
	other.Server, ranged.From, ranged.To = netip.MustParseAddr("10.0.0.9"), 0x10000, 0x20000
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: nothing{}})
	if err != nil {
		t.Fatal(err)
	}
	var out packetio.Batch
	for name, c := range map[string]struct {
		between []rules.Rule
		kept    bool
	}{
		"no rule":        {nil, false},
		"hardened":       {[]rules.Rule{hardened}, false},
		"track":          {[]rules.Rule{{Server: server}}, false},
		"another server": {[]rules.Rule{other}, false},
		"a range":        {[]rules.Rule{ranged}, false},
		"the same":       {[]rules.Rule{steer}, true},
		"READs only":     {[]rules.Rule{read}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, flow := New(Config{}), &conntrack.Flow{}
			set := func(list ...rules.Rule) {
				t.Helper()
				s, err := rules.NewSet(list)
				if err != nil {
					t.Fatal(err)
				}
				m.SetRules(s)
			}
			var psn wire.PSN
			request := func(op wire.Opcode, va uint64) uint64 {
				p := &pipeline.Parsed{}
				psn = psn.Next()
				p.BTH.Opcode, p.BTH.PSN, p.AtomicETH.VA, p.RETH = op, psn, va, wire.RETH{VA: va, Length: 128}
				p.Payload = make([]byte, 128)
				layout.Hardened.PutNode(p.Payload, layout.Header(1), 7, nil)
				sw.Step(0, &out, func(c *pipeline.Ctx) {
					m.Request(c, conntrack.Seen{Flow: flow, Class: conntrack.New, Span: 1}, &steer, p)
				})
				return p.RETH.VA
			}
			read := func(va uint64) uint64 { return request(wire.RCReadRequest, va) }
			node := func(va uint64) {
				request(wire.RCWriteOnly, va)
				request(wire.RCCmpSwap, 0x1000)
			}
			set(steer)
			request(wire.RCWriteOnly, 0x1000)
			node(0x2000)
			if va := read(0x1000); va != 0x2000 {
				t.Fatalf("before the change, the READ goes to %#x", va)
			}
			set(c.between...)
			set(steer)
			want := uint64(0x1000)
			if c.kept {
				want = 0x2000
			}
			if va := read(0x1000); va != want {
				t.Errorf("the READ goes to %#x, want %#x", va, want)
			}
			// The key of a node is stale, too: its memory may belong to another key by now.
			node(0x3000)
			if c.kept {
				want = 0x3000
			}
			if va := read(0x1000); va != want {
				t.Errorf("after another append, the READ goes to %#x, want %#x", va, want)
			}
		})
	}
}

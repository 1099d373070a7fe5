package statestore

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// nothing is a program that forwards everything.
type nothing struct{}

func (nothing) Spec() pipeline.Spec { return pipeline.Spec{Name: "nothing"} }

func (nothing) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (nothing) Tick(*pipeline.Ctx)                                      {}
func (nothing) Deadline() clock.Time                                    { return clock.Never }

func ruleSet(t *testing.T, texts ...string) *rules.Set {
	t.Helper()
	var list []rules.Rule
	for _, text := range texts {
		r, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	set, err := rules.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A change of other rules does not change the accumulator of a rule. What is in the accumulator of a
// rule that changes or goes is not counted, and says so.
func TestAccumulatorAndRules(t *testing.T) {
	const mine = "id=mine server=10.0.0.1 action=count mode=published store=10.0.0.2 depth=1"
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: nothing{}})
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	set := ruleSet(t, mine)
	m.SetRules(set)
	g := memgrant.Grant{Conn: 1, Boot: 1, Region: memgrant.Region{Addr: 0x10000, RKey: 7, Len: 1 << 16}}
	s := switchconn.Shared{
		Key: m.Wants(&set.All()[0])[0].Key, Generation: 1, ServerQPN: 0x20, OwnQPN: 0x30, MTU: 1024, Depth: 1,
		Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.To.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 9}, Dst: netip.MustParseAddr("10.0.0.2").As4(), TTL: 64, Protocol: wire.ProtocolUDP}
	var out packetio.Batch
	sw.Step(1, &out, func(c *pipeline.Ctx) {
		if !m.Attach(c, s) {
			t.Error("the connection was refused")
		}
		for range 4 { // the first one is in flight, the others wait in the accumulator
			m.Observe(c, &set.All()[0], handler.Target{Opcode: wire.RCReadRequest, VA: 8, Length: 8})
		}
	})
	for _, step := range []struct {
		rules            []string
		waiting, dropped uint64
	}{
		{[]string{mine}, 3, 0},
		{[]string{"id=other server=10.0.0.3 action=track", mine}, 3, 0},
		{[]string{mine + " add=bytes"}, 0, 3},
		{nil, 0, 3},
	} {
		m.SetRules(ruleSet(t, step.rules...))
		if n := m.Accumulated(); n != step.waiting || m.Stats().Unsent != step.dropped {
			t.Errorf("rules %q: %d in accumulators, %d not counted; want %d and %d", step.rules, n, m.Stats().Unsent, step.waiting, step.dropped)
		}
	}
}

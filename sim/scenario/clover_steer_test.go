package scenario

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// steering returns a function that makes a switch program which steers with machine m. The program
// has no journal, so it must not crash.
func steering(m handler.Machine) func(*rackfile.Rack) (pipeline.Program, error) {
	return func(s *rackfile.Rack) (pipeline.Program, error) {
		set, err := rules.NewSet(s.Switch.Rules)
		if err != nil {
			return nil, err
		}
		p := swordbox.New(swordbox.Config{Rules: set, Handlers: []handler.Handler{m}, Track: conntrack.Config{Settle: -1}})
		for port, h := range s.Hosts {
			for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
				if a.IsValid() {
					p.Connections().Bind(a, port)
				}
			}
		}
		return p, nil
	}
}

// posted identifies a request by its flow and PSN.
type posted struct {
	row uint32
	psn wire.PSN
}

// believer is a machine that steers and is told too early that an append has succeeded. With sent
// it is told when the append is sent, though it may not arrive: then a chain that breaks is not
// repaired (holes 28 and 30). Otherwise it is told when any answer comes, also that the append has
// failed: then its tails are stale (hole 29).
type believer struct {
	*cloversteer.Machine
	sent     bool
	compares map[posted]uint64
}

// tell tells the machine that an append has succeeded.
func (b *believer) tell(c *pipeline.Ctx, r *conntrack.Flow, psn wire.PSN, compare uint64) {
	var p pipeline.Parsed
	p.BTH.Opcode, p.BTH.PSN, p.AtomicAck = wire.RCAtomicAck, psn, compare
	b.Machine.Response(c, conntrack.Seen{Flow: r, Response: true}, &p)
}

func (b *believer) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	v := b.Machine.Request(c, s, r, p)
	if p.BTH.Opcode == wire.RCCmpSwap && s.Class == conntrack.New {
		b.compares[posted{s.Flow.ID, p.BTH.PSN}] = p.AtomicETH.Compare
		if b.sent && v.Action != pipeline.ActHold {
			b.tell(c, s.Flow, p.BTH.PSN, p.AtomicETH.Compare)
		}
	}
	return v
}

func (b *believer) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	if compare, ok := b.compares[posted{s.Flow.ID, p.BTH.PSN}]; ok && p.BTH.Opcode == wire.RCAtomicAck {
		b.tell(c, s.Flow, p.BTH.PSN, compare)
	}
	return b.Machine.Response(c, s, p)
}

// Histories show when a safeguard of steering is missing. With all safeguards they are
// linearizable.
func TestPlantedSteeringBugsAreCaught(t *testing.T) {
	t.Parallel()
	believing := func(sent bool) func() handler.Machine {
		return func() handler.Machine {
			return &believer{cloversteer.New(cloversteer.Config{}), sent, make(map[posted]uint64)}
		}
	}
	for _, c := range []struct {
		name, steer string
		machine     func() handler.Machine
		least       int
	}{
		{"none", "both", func() handler.Machine { return cloversteer.New(cloversteer.Config{}) }, 0},
		{"a broken chain that is not repaired", "write", believing(true), 2},
		{"read before it is linked", "read", believing(true), 2},
		{"a stale read tail", "read", believing(false), 2},
	} {
		caught, seeds := 0, uint64(20)
		if c.least == 0 {
			seeds = uint64(verbstest.Tries(20, 6))
		}
		for seed := uint64(1); seed <= seeds && (caught < c.least || c.least == 0); seed++ {
			change := func(p *storePlan) {
				p.steer, p.box = c.steer, steerBox(c.steer, "all")
				p.rack.Wrap = nil
				p.rack.Program, p.rack.Datagrams = steering(c.machine()), true
				if p.keys = 1; p.what == storeSwitchCrash {
					p.what = storeNothing
				}
			}
			s := Scenario{Name: "clover-steer", run: func(e *env) error { return new(storePlan).runSteered(e, c.steer, mixNone, change) }}
			if r := s.Run(seed, Options{}); r.Err != nil {
				if caught++; caught == 1 {
					t.Logf("%s: seed %d: %.200s", c.name, seed, r.Err)
				}
			}
		}
		if caught < c.least || c.least == 0 && caught > 0 {
			t.Errorf("%s: caught with %d of %d seeds, want at least %d", c.name, caught, seeds, c.least)
		}
	}
}

// Nodes have two or three packets, and READs of them are steered; the histories are linearizable.
func TestSteeredReadsOfSeveralPackets(t *testing.T) {
	t.Parallel()
	steered := uint64(0)
	for seed := range uint64(verbstest.Tries(30, 8)) {
		seed++
		m := cloversteer.New(cloversteer.Config{})
		change := func(p *storePlan) {
			p.steer, p.box = steerAny, steerBox("both", "all")
			p.rack.Wrap = nil
			p.rack.Program, p.rack.Datagrams = steering(m), true
			p.params.PathMTU, p.region = verbs.MTU256, 512<<10
			p.shares, p.sizes = [layout.Classes]int{0, 20, 40, 40}, []int{400, 700}
			if p.what == storeSwitchCrash {
				p.what = storeNothing
			}
		}
		s := Scenario{Name: "clover-steer", run: func(e *env) error { return new(storePlan).runSteered(e, steerAny, mixNone, change) }}
		if r := s.Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
		steered += m.Stats().SteeredReads
	}
	if steered < 100 {
		t.Errorf("only %d READs were steered", steered)
	}
}

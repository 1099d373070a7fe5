package scenario

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// playState runs a fixed plan, changed by a test, and returns the run and its judgement.
func playState(t *testing.T, mode string, opt Options, change func(p *statePlan)) (*stateRun, error) {
	t.Helper()
	e := newEnv(Scenario{Name: "state-store"}, 1, opt)
	t.Cleanup(e.finish)
	p := &statePlan{mode: mode, stores: 1, shards: 1, depth: 4, slots: 8, rows: 1, per: "address", add: "requests", unit: "line", clients: 4, rounds: 60, midFault: midFault{fault: stateCalm, victim: "ms1"}}
	p.params.PathMTU, p.rack.Datagrams, p.rack.Delay = verbs.MTU1024, true, time.Microsecond
	if mode == modePublished {
		p.slots = 1
	}
	change(p)
	r, err := p.begin(e)
	if err == nil {
		err = e.run()
	}
	if err == nil {
		err = r.judge()
	}
	if r.oracle.requests == 0 {
		t.Fatalf("no request was counted: %v", err)
	}
	return r, err
}

// What the switch has dropped before it crashes is not lost in the crash: it was never to be in the
// stores' memory.
func TestDroppedBeforeACrash(t *testing.T) {
	r, err := playState(t, modeHardened, Options{}, func(p *statePlan) {
		p.slots, p.rows, p.unit, p.clients, p.rounds, p.depth = 1000, 4, "word", 8, 200, 1
		p.fault, p.when, p.down, p.rack.Delay = stateSwitchCrash, 12*time.Millisecond, 100*time.Microsecond, 50*time.Microsecond
	})
	if err != nil || r.gone == 0 || r.before == 0 {
		t.Errorf("%v; %d counted before the crash, %d dropped", err, r.before, r.gone)
	}
}

// hazards are what the published design leaves open. damage reports whether the published run shows
// the damage.
var hazards = []struct {
	name   string
	change func(p *statePlan)
	damage func(r *stateRun) bool
}{
	{
		"a lost FETCH_ADD stops the counters",
		func(p *statePlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Down, fault.Loss, wire.RCFetchAdd, 1)}
		},
		func(r *stateRun) bool { return r.remote() == 0 && r.count("outstanding") == 4 },
	},
	{
		"an overtaken FETCH_ADD stops the counters",
		func(p *statePlan) {
			f := stateFaultOn("ms1", fault.Down, fault.Reorder, wire.RCFetchAdd, 1)
			f.Delay = 200 * time.Microsecond
			p.rules = []fault.Rule{f}
		},
		func(r *stateRun) bool { return r.remote() < r.count("amount")/2 && r.count("outstanding") > 0 },
	},
	{
		"lost responses take the places in flight for ever",
		func(p *statePlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Up, fault.Loss, wire.RCAtomicAck, 4)}
		},
		func(r *stateRun) bool { return r.count("outstanding") == 4 && r.remote() < r.count("amount")/2 },
	},
	{
		"a response that arrives twice returns a place too many",
		func(p *statePlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Up, fault.Duplicate, wire.RCAtomicAck, 0)}
			p.rules[0].Probability = 1
		},
		func(r *stateRun) bool { return r.count("responses") > r.count("fetch_adds") },
	},
	{
		"what has waited stays in the switch when the requests end",
		func(p *statePlan) { p.depth, p.slots, p.rack.Delay = 1, 1, 50*time.Microsecond },
		func(r *stateRun) bool { return r.count("accumulated") > 0 && r.remote() < r.count("amount") },
	},
	{
		"a crash of the switch loses counts, and nothing says how many",
		func(p *statePlan) {
			p.fault, p.when, p.down, p.rack.Delay, p.depth = stateSwitchCrash, 1500*time.Microsecond, 100*time.Microsecond, 50*time.Microsecond, 1
		},
		func(r *stateRun) bool { return r.remote() < r.before+r.count("amount") && r.count("former") == 0 },
	},
	{
		"a store that was restarted counts no more",
		func(p *statePlan) {
			p.fault, p.when, p.down = stateNICCrash, 1200*time.Microsecond, 500*time.Microsecond
		},
		func(r *stateRun) bool { return r.remote() < r.count("amount")-r.count("accumulated") },
	},
}

// Each hazard does its damage under a published rule. Under a hardened one every count is where the
// switch says, and without crashes every counter is exact.
func TestStateStoreHazards(t *testing.T) {
	for _, h := range hazards {
		t.Run(h.name, func(t *testing.T) {
			r, err := playState(t, modePublished, Options{}, h.change)
			if err != nil || !h.damage(r) {
				t.Errorf("published: no damage: %v; %v", err, r.env.report.Notes)
			}
			r, err = playState(t, modeHardened, Options{}, h.change)
			if err != nil {
				t.Errorf("hardened: %v; %v", err, r.env.report.Notes)
			}
			if r.plan.fault == stateCalm && !r.exact() || r.count("amount") == 0 {
				t.Errorf("hardened: the counters are not exact: %v", r.env.report.Notes)
			}
		})
	}
}

// With limits of 1, 4 and 16 FETCH_ADDs in flight, while the links to the stores lose, duplicate, reorder
// and delay packets and PSNs wrap around, what the switch has counted is in the memory, pending, in
// flight or uncertain at every moment. A crash of the switch loses what its journal says at most; without
// one each counter is exact.
func TestCountingUnderFaults(t *testing.T) {
	for _, depth := range []int{1, 4, 16} {
		for _, crash := range []bool{false, true} {
			r, err := playState(t, modeHardened, Options{}, func(p *statePlan) {
				p.depth, p.clients, p.rounds, p.slots, p.stores = depth, 6, 400, 64, 2
				p.wrap = true
				p.rack.FirstPSN = psnNearWrap
				for _, link := range []string{"ms1", "ms2"} {
					p.rules = append(p.rules,
						fault.Rule{Link: link, Kind: fault.Loss, Probability: 0.02}, fault.Rule{Link: link, Kind: fault.Duplicate, Probability: 0.02},
						fault.Rule{Link: link, Kind: fault.Reorder, Probability: 0.02, Delay: 30 * time.Microsecond})
				}
				if crash {
					p.fault, p.victim, p.when, p.down = stateSwitchCrash, "the switch", 4*time.Millisecond, 300*time.Microsecond
				}
			})
			t.Logf("%d in flight: %v", depth, r.env.report.Notes)
			if err != nil || r.checks < 10 || r.count("requester_resent") == 0 || !crash && (!r.exact() || r.count("uncertain")+r.count("dropped") != 0) || (r.before != 0) != crash {
				t.Errorf("%d in flight, crash %v: %v; %v", depth, crash, err, r.env.report.Notes)
			}
		}
	}
}

// twiceNode is a store's NIC that executes every fifth FETCH_ADD again, with another PSN.
type twiceNode struct {
	simnet.Node
	run  func() *stateRun
	seen int
}

func (n *twiceNode) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	n.Node.Frame(now, port, f, out)
	var fr wire.Frame
	if wire.ParseFrame(f.Data, &fr) != nil || fr.BTH.Opcode != wire.RCFetchAdd {
		return
	}
	if n.seen++; n.seen%5 == 0 {
		n.run().memory[1][n.run().plan.at]++
	}
}

// The oracle notices a counter that is added to twice, and one that is not added to.
func TestStateStorePlanted(t *testing.T) {
	var r *stateRun
	e := newEnv(Scenario{Name: "state-store"}, 1, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if name == "ms1" {
			return &twiceNode{Node: n, run: func() *stateRun { return r }}
		}
		return n
	}})
	defer e.finish()
	p := new(statePlan).draw(e)
	p.fault, p.rules, p.slots, p.stores = stateCalm, nil, 1, 1
	var err error
	if r, err = p.begin(e); err == nil {
		err = e.run()
	}
	if err == nil {
		err = r.judge()
	}
	if err == nil {
		t.Error("a store that counts twice is not noticed")
	}

	_, err = playState(t, modeHardened, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if name != "ms1" {
			return n
		}
		return &tamper{Node: n, in: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCFetchAdd {
				return false
			}
			f.AtomicETH.SwapOrAdd--
			return true
		}}
	}}, func(*statePlan) {})
	if err == nil {
		t.Error("a FETCH_ADD that adds too little is not noticed")
	}
}

// A sketch never estimates too little, also under loss, and each of its rows has all counts.
func TestSketch(t *testing.T) {
	for _, per := range []string{"flow", "address"} {
		r, err := playState(t, modeHardened, Options{}, func(p *statePlan) {
			p.rows, p.slots, p.per, p.unit, p.stores, p.shards = 4, 16, per, "word", 2, 2
			p.rules = []fault.Rule{{Link: "ms1", Kind: fault.Loss, Probability: 0.05}}
		})
		if err != nil || !r.exact() || len(r.oracle.keys) < 2 || r.count("amount") != 4*r.count("requests") {
			t.Errorf("per %s: %d keys: %v; %v", per, len(r.oracle.keys), err, r.env.report.Notes)
		}
	}
}

// exact reports whether every counter in the stores equals the sum that requests have added to it.
func (r *stateRun) exact() bool {
	for i := range r.plan.counters() {
		if r.slot(i) != r.oracle.want[i] {
			return false
		}
	}
	return true
}

// stateFaultOn returns a fault rule that hits the first count packets with opcode op in one
// direction of a link.
func stateFaultOn(link string, dir fault.Dir, kind fault.Kind, op wire.Opcode, count int) fault.Rule {
	f := fault.Rule{Link: link, Dir: dir, Kind: kind, Count: count}
	f.Match.Opcodes = []wire.Opcode{op}
	return f
}

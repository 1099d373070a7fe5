package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// playLookup runs a fixed plan, changed by a test, and returns the run and its judgement.
func playLookup(t *testing.T, opt Options, change func(p *lookupPlan)) (*lookupRun, error) {
	t.Helper()
	e := newEnv(Scenario{Name: "lookup"}, 1, opt)
	t.Cleanup(e.finish)
	p := &lookupPlan{
		mode: modeHardened, servers: 1, capacity: 64, cells: 128, cell: 2048, depth: 8, flows: 12, theta: 0.8, frames: 400, burst: 16, gap: 40 * time.Microsecond,
		least: 100, most: 800,
	}
	p.fault = stateCalm
	p.rack.Datagrams, p.rack.Delay = true, time.Microsecond
	change(p)
	r, err := beginLookup(e, p)
	if err == nil {
		err = e.run()
	}
	if err == nil {
		err = r.judge()
	}
	if r.sent == 0 {
		t.Fatalf("no frame was sent: %v", err)
	}
	return r, err
}

// lookupHazards are what a lookup table in servers' memory must not do.
var lookupHazards = []struct {
	name   string
	change func(p *lookupPlan)
}{
	{"two packets of one flow", func(p *lookupPlan) { p.flows, p.burst = 1, 60 }},
	{"keys with the same slots", func(p *lookupPlan) { p.capacity, p.flows = 16, 20 }},
	{"entries that move on while packets are looked up", func(p *lookupPlan) { p.capacity, p.churn = 16, 20 }},
	{"a packet of a flow in the cache and one in flight", func(p *lookupPlan) { p.cache, p.rack.Delay = 16, 10*time.Microsecond }},
	{"a lost WRITE", func(p *lookupPlan) {
		p.rules = []fault.Rule{stateFaultOn("ms1", fault.Down, fault.Loss, wire.RCWriteOnly, 1)}
	}},
	{"a WRITE that a later request overtakes", func(p *lookupPlan) {
		f := stateFaultOn("ms1", fault.Down, fault.Reorder, wire.RCWriteOnly, 1)
		f.Delay = 200 * time.Microsecond
		p.rules = []fault.Rule{f}
	}},
	{"a lost READ", func(p *lookupPlan) {
		p.rules = []fault.Rule{stateFaultOn("ms1", fault.Down, fault.Loss, wire.RCReadRequest, 1)}
	}},
	{"a lost READ response", func(p *lookupPlan) {
		p.rules = []fault.Rule{stateFaultOn("ms1", fault.Up, fault.Loss, wire.RCReadResponseOnly, 1)}
	}},
	{"responses that arrive twice", func(p *lookupPlan) {
		f := stateFaultOn("ms1", fault.Up, fault.Duplicate, wire.RCReadResponseOnly, 0)
		f.Probability = 1
		p.rules = []fault.Rule{f}
	}},
	{"a server that was restarted", func(p *lookupPlan) {
		p.fault, p.victim, p.when, p.down = stateNICCrash, "ms1", 300*time.Microsecond, time.Millisecond
	}},
}

// No hazard gives a packet to another flow, another place or twice, or lets one overtake another, and
// the switch counts all that did not arrive.
func TestLookupHazards(t *testing.T) {
	for _, h := range lookupHazards {
		t.Run(h.name, func(t *testing.T) {
			r, err := playLookup(t, Options{}, h.change)
			if err != nil || r.oracle.err != nil || r.oracle.arrived() == 0 || r.count("in_flight") != 0 {
				t.Errorf("%v; %v; %d arrived; %v", err, r.oracle.err, r.oracle.arrived(), r.env.report.Notes)
			}
		})
	}
}

// The switch notices slots that were read while they were written, and drops the packet.
func TestTornEntriesAreNoticed(t *testing.T) {
	r, err := playLookup(t, Options{Wrap: func(name string, n sim.Node) sim.Node {
		if name != "ms1" {
			return n
		}
		return &tamper{Node: n, out: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCReadResponseOnly || len(f.Payload) != 512 {
				return false
			}
			for i := 0; i < len(f.Payload); i += 64 {
				f.Payload[i]++
			}
			return true
		}}
	}}, func(*lookupPlan) {})
	if torn := r.count("torn"); torn < 10 || r.oracle.err != nil || err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("%d torn; %v; %v", torn, err, r.oracle.err)
	}
}

// The oracle notices a packet with other bytes.
func TestLookupPlanted(t *testing.T) {
	r, err := playLookup(t, Options{Wrap: func(name string, n sim.Node) sim.Node {
		if name != "ms1" {
			return n
		}
		return &tamper{Node: n, in: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCWriteOnly || len(f.Payload) < 100 {
				return false
			}
			f.Payload[len(f.Payload)-1]++
			return true
		}}
	}}, func(*lookupPlan) {})
	if err == nil || r.oracle.err == nil {
		t.Errorf("%v; %v", err, r.oracle.err)
	}
}

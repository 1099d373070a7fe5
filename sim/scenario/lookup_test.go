package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// playLookup runs a fixed plan, changed by a test, and returns the run and its judgement.
func playLookup(t *testing.T, mode string, opt Options, change func(p *lookupPlan)) (*lookupRun, error) {
	t.Helper()
	e := newEnv(Scenario{Name: "lookup"}, 1, opt)
	t.Cleanup(e.finish)
	p := &lookupPlan{
		mode: mode, packets: "deposit", servers: 1, capacity: 64, cells: 128, cell: 2048, depth: 8, flows: 12, theta: 0.8, frames: 400, bursts: bursts{16, 40 * time.Microsecond},
		payload: payload{100, 800},
	}
	p.fault = stateCalm
	p.rack.Datagrams, p.rack.Delay = true, time.Microsecond
	change(p)
	r, err := p.begin(e)
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

// stopped reports whether lookups have stopped: packets wait for ever.
func (r *lookupRun) stopped() bool { return r.count("in_flight") > 0 && r.oracle.arrived() < r.sent/2 }

// onMS1 returns a fault rule for the first n packets with an opcode on the link of ms1.
func onMS1(p *lookupPlan, dir fault.Dir, kind fault.Kind, op wire.Opcode, n int) {
	f := stateFaultOn("ms1", dir, kind, op, n)
	if n == 0 {
		f.Probability = 1
	}
	if kind == fault.Reorder {
		f.Delay = 200 * time.Microsecond
	}
	p.rules = append(p.rules, f)
}

// lookupHazards are what the published design leaves open. damage reports whether the published run
// shows the damage.
var lookupHazards = []struct {
	name   string
	change func(p *lookupPlan)
	damage func(r *lookupRun) bool
}{
	{
		"two packets of one flow, more than the READs in flight, share a cell: one is lost and the other leaves twice",
		func(p *lookupPlan) { p.flows, p.bursts.most = 1, 60 },
		func(r *lookupRun) bool { return r.oracle.wrong[wrongTwice] > 10 && r.oracle.wrong[wrongEntry] == 0 },
	},
	{
		"keys with the same slot get each other's action",
		func(p *lookupPlan) {
			p.capacity, p.flows, p.bursts.most, p.bursts.gap = 16, 20, 1, 200*time.Microsecond
		},
		func(r *lookupRun) bool { return r.oracle.wrong[wrongEntry] > 10 && r.oracle.wrong[wrongTwice] == 0 },
	},
	{
		"a packet whose entry is in the cache overtakes one in flight",
		func(p *lookupPlan) { p.cache, p.rack.Delay, p.flows, p.capacity = 16, 10*time.Microsecond, 2, 4096/16 },
		func(r *lookupRun) bool { return r.oracle.wrong[wrongBehind] > 0 },
	},
	{
		"a lost WRITE stops lookups",
		func(p *lookupPlan) { onMS1(p, fault.Down, fault.Loss, wire.RCWriteOnly, 20) },
		(*lookupRun).stopped,
	},
	{
		"an overtaken WRITE stops lookups",
		func(p *lookupPlan) { onMS1(p, fault.Down, fault.Reorder, wire.RCWriteOnly, 20) },
		(*lookupRun).stopped,
	},
	{
		"a lost READ stops lookups",
		func(p *lookupPlan) { onMS1(p, fault.Down, fault.Loss, wire.RCReadRequest, 1) },
		(*lookupRun).stopped,
	},
	{
		"as many lost READ responses as may be in flight stop lookups",
		func(p *lookupPlan) { onMS1(p, fault.Up, fault.Loss, wire.RCReadResponseOnly, p.depth) },
		(*lookupRun).stopped,
	},
	{
		"a response that arrives twice lets a packet leave twice",
		func(p *lookupPlan) {
			onMS1(p, fault.Up, fault.Duplicate, wire.RCReadResponseOnly, 0)
			p.flows = 1
		},
		func(r *lookupRun) bool { return r.oracle.wrong[wrongTwice] > 10 },
	},
	{
		"a server that was restarted brings nothing back",
		func(p *lookupPlan) {
			p.fault, p.victim, p.when, p.down = stateNICCrash, "ms1", 100*time.Microsecond, time.Millisecond
		},
		(*lookupRun).stopped,
	},
	{
		"an entry that was read while another writer wrote it is used",
		func(p *lookupPlan) {
			p.flows, p.bursts.most, p.bursts.gap, p.frames = 6, 1, 30*time.Microsecond, 2000
			p.otherWriter()
		},
		func(r *lookupRun) bool { return r.oracle.wrong[wrongEntry] > 0 },
	},
}

// Each hazard does its damage under a published rule. Under a hardened one no packet gets another
// one's entry or place, arrives twice, or overtakes another one, and the switch counts all that did not
// arrive.
func TestLookupHazards(t *testing.T) {
	for _, h := range lookupHazards {
		t.Run(h.name, func(t *testing.T) {
			r, err := playLookup(t, modePublished, Options{}, h.change)
			if err != nil || !h.damage(r) {
				t.Errorf("published: no damage: %v; %v; %v", err, r.oracle.wrong, r.env.report.Notes)
			}
			r, err = playLookup(t, modeHardened, Options{}, h.change)
			if err != nil || r.oracle.err != nil || r.oracle.arrived() == 0 || r.count("in_flight") != 0 {
				t.Errorf("hardened: %v; %v; %d arrived; %v", err, r.oracle.err, r.oracle.arrived(), r.env.report.Notes)
			}
			if r.plan.changes == changesWriter && r.count("torn") == 0 {
				t.Errorf("hardened: no torn entry was noticed: %v", r.env.report.Notes)
			}
		})
	}
}

// Without faults, collisions and packets that share a cell, the published table does what entries say.
func TestPublishedLookup(t *testing.T) {
	r, err := playLookup(t, modePublished, Options{}, func(p *lookupPlan) {
		p.flows, p.capacity, p.bursts.most, p.bursts.gap, p.frames = 5, 256, 1, 100*time.Microsecond, 200
	})
	if err != nil || len(r.oracle.wrong) != 0 || r.oracle.arrived() == 0 || r.count("hits") != 200 || r.oracle.found != 200-r.count("denied") {
		t.Errorf("%v; %v; %v", err, r.oracle.err, r.env.report.Notes)
	}
}

// Entries move on, come, change and go while packets are looked up: each packet meets one of the
// entries that its flow has had since it was sent.
func TestEntriesChangeWhilePacketsAreLookedUp(t *testing.T) {
	for _, cache := range []int{0, 16} {
		r, err := playLookup(t, modeHardened, Options{}, func(p *lookupPlan) {
			p.capacity, p.churn, p.changes, p.cache, p.frames = 16, 20, changesControl, cache, 4000
		})
		if err != nil || r.changed < 100 || r.quiet < 20 || r.count("removed") == 0 || cache > 0 && r.count("cached") < 100 {
			t.Errorf("cache %d: %d changed, %d times none waited: %v; %v", cache, r.changed, r.quiet, err, r.env.report.Notes)
		}
	}
}

// The switch notices slots that were read while they were written, and drops the packet.
func TestTornEntriesAreNoticed(t *testing.T) {
	r, err := playLookup(t, modeHardened, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
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
	r, err := playLookup(t, modeHardened, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
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

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// playBuffer runs a fixed plan, changed by a test, and returns the run and its judgement.
func playBuffer(t *testing.T, mode string, opt Options, change func(p *bufferPlan)) (*bufferRun, error) {
	t.Helper()
	e := newEnv(Scenario{Name: "buffer"}, 1, opt)
	t.Cleanup(e.finish)
	p := &bufferPlan{
		bufferRule: bufferRule{mode: mode, servers: 1, entry: 2048, depth: 8, rate: "1Gbit", entries: 500, high: 64, low: 8},
		frames:     100, burst: 10, gap: 20 * time.Microsecond, least: 1500, most: 1500,
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

// Eight senders fill a port that is too slow: with a ring that has room nothing is lost and no flow
// is reordered.
func TestBufferKeepsABurst(t *testing.T) {
	for servers := range bufferServers {
		r, err := playBuffer(t, modeHardened, Options{}, func(p *bufferPlan) {
			p.servers, p.entry, p.least, p.most = servers+1, 512, 400, 480
			p.entries = p.servers * (bufferBytes/512 - 1)
			p.frames = p.entries / bufferSenders
		})
		if err != nil || r.oracle.arrived != r.sent || r.count("stored") < uint64(r.sent)*9/10 {
			t.Errorf("%d servers: %d of %d frames arrived: %v; %v", servers+1, r.oracle.arrived, r.sent, err, r.env.report.Notes)
		}
	}
}

// Eight senders with 10,000 frames each fill a port that is too slow: nothing is lost, no sender's frames
// are reordered, and the port is never idle. With 1 % loss on the links to the ring the frames that do not
// arrive are those that are counted. PSNs wrap around.
func TestBufferKeepsEightyThousandFrames(t *testing.T) {
	const frames = 10_000
	for _, loss := range []float64{0, 0.01} {
		var began clock.Time
		r, err := playBuffer(t, modeHardened, Options{}, func(p *bufferPlan) {
			p.servers, p.entry, p.least, p.most, p.frames, p.burst, p.rack.Delay = 1, 512, 200, 480, frames, 50, 3*time.Microsecond
			p.begun = func(r *bufferRun) { began = r.env.rack.Now() }
			if loss > 0 { // the frames in flight behind a loss are lost, too, so the senders are not so fast
				p.burst, p.servers, p.rules = 4, bufferServers, []fault.Rule{
					{Link: "ms1", Kind: fault.Loss, Probability: loss}, {Link: "ms2", Kind: fault.Loss, Probability: loss}, {Link: "ms3", Kind: fault.Loss, Probability: loss},
				}
			}
			p.entries = bufferSenders * frames
			p.room = (p.entries/p.servers + 2) * p.entry
			p.wrap = true
			p.rack.FirstPSN = psnNearWrap
		})
		stored, lost, took := r.count("stored"), r.count("lost"), r.oracle.last.Sub(began)
		t.Logf("%g loss: %d of %d arrived, %d went to the ring, %d lost, in %v", loss, r.oracle.arrived, r.sent, stored, lost, took)
		if err != nil || r.sent != bufferSenders*frames || uint64(r.oracle.arrived) != uint64(r.sent)-r.dropped() || (lost == 0) != (loss == 0) ||
			stored < uint64(r.sent)/2 || r.oracle.arrived < r.sent/3 || loss == 0 && r.dropped() != 0 {
			t.Errorf("%g loss: %v; %v", loss, err, r.env.report.Notes)
		}
		// The mean frame has 340 bytes.
		if busy := float64(r.oracle.arrived) * 340 * 8 / 1e9; loss == 0 && took.Seconds() > 1.01*busy {
			t.Errorf("the port was idle: %v for %.3g s of frames", took, busy)
		}
	}
}

// A ring that is too small loses exactly what the counters say.
func TestBufferTooSmall(t *testing.T) {
	r, err := playBuffer(t, modeHardened, Options{}, func(p *bufferPlan) { p.entries, p.burst = 64, 100 })
	if full := r.count("full"); err != nil || full < 500 || r.oracle.arrived != r.sent-int(full) {
		t.Errorf("%d of %d arrived, %d found the ring full: %v", r.oracle.arrived, r.sent, full, err)
	}
}

// With 1 % loss on the memory link the lost frames are counted, and the stream goes on.
func TestBufferWithLoss(t *testing.T) {
	r, err := playBuffer(t, modeHardened, Options{}, func(p *bufferPlan) {
		p.entry, p.least, p.most, p.entries, p.burst = 512, 400, 480, bufferBytes/512-1, 1
		p.frames = p.entries / bufferSenders
		p.rules = []fault.Rule{{Link: "ms1", Kind: fault.Loss, Probability: 0.01}}
	})
	lost := r.count("lost")
	if err != nil || lost == 0 || r.count("loaded") < 5*lost || r.count("requester_emptied") == 0 {
		t.Errorf("%d lost, %d loaded: %v; %v", lost, r.count("loaded"), err, r.env.report.Notes)
	}
}

// The oracle notices frames with other bytes, frames that are lost though the counters say nothing,
// and frames that overtake others.
func TestBufferPlanted(t *testing.T) {
	reads := 0
	for _, tc := range []struct {
		name, want string
		in         func(f *wire.Frame) bool
	}{
		{"other bytes", "has other bytes", func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCWriteOnly || len(f.Payload) < 100 {
				return false
			}
			f.Payload[len(f.Payload)-1]++
			return true
		}},
		{"another place", "", func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCReadRequest {
				return false
			}
			if reads++; reads%5 == 0 {
				f.RETH.VA += 2048
			}
			return reads%5 == 0
		}},
	} {
		r, err := playBuffer(t, modeHardened, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
			if name != "ms1" {
				return n
			}
			return &tamper{Node: n, in: tc.in}
		}}, func(*bufferPlan) {})
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.want == "" && (err != nil || r.count("lost") == 0) {
			t.Errorf("%s: an entry of another place is not noticed: %v, %v", tc.name, err, r.env.report.Notes)
		}
	}
	r := &bufferRun{plan: &bufferPlan{}}
	e := newEnv(Scenario{Name: "buffer"}, 1, Options{})
	t.Cleanup(e.finish)
	if err := e.build(passiveRack(1, bufferSenders), r.plan.rack); err != nil {
		t.Fatal(err)
	}
	r.env = e
	o := &bufferOracle{run: r}
	o.see(o.build(1, 5, 60))
	if o.err != nil {
		t.Errorf("the first frame: %v", o.err)
	}
	if o.see(o.build(1, 4, 60)); o.err == nil {
		t.Error("a frame that was overtaken is not noticed")
	}
}

// After a crash of the switch its counters do not show what was lost. If no frame arrives, this is
// right only if none reached the switch while it was up.
func TestNoFrameArrives(t *testing.T) {
	crash := func(p *bufferPlan, when time.Duration) {
		p.fault, p.victim, p.when, p.down = stateSwitchCrash, "the switch", when, 100*time.Millisecond
	}
	r, err := playBuffer(t, modeHardened, Options{}, func(p *bufferPlan) { crash(p, 0) })
	if err != nil || r.oracle.arrived != 0 || r.oracle.taken != 0 {
		t.Errorf("the switch was down: %d frames reached it, %d arrived: %v", r.oracle.taken, r.oracle.arrived, err)
	}
	r, err = playBuffer(t, modeHardened, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if name != rackfile.SwitchName {
			return n
		}
		return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool { return !isBuffered(f.Data) }} // a switch that loses them without a count
	}}, func(p *bufferPlan) { crash(p, 100*time.Microsecond) })
	if err == nil || !strings.Contains(err.Error(), "no frame arrived") || r.oracle.taken == 0 {
		t.Errorf("the switch was up at first: %d frames reached it, %d arrived: %v", r.oracle.taken, r.oracle.arrived, err)
	}
}

// bufferHazards are what the published design leaves open. damage reports whether the published run
// shows the damage.
var bufferHazards = []struct {
	name   string
	change func(p *bufferPlan)
	damage func(r *bufferRun) bool
}{
	{
		"a lost WRITE stops the port",
		func(p *bufferPlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Down, fault.Loss, wire.RCWriteOnly, 1)}
		},
		stopped,
	},
	{
		"a WRITE that a later request overtakes stops the port",
		func(p *bufferPlan) {
			f := stateFaultOn("ms1", fault.Down, fault.Reorder, wire.RCWriteOnly, 1)
			f.Delay = 200 * time.Microsecond
			p.rules = []fault.Rule{f}
		},
		stopped,
	},
	{
		"a lost READ stops the port",
		func(p *bufferPlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Down, fault.Loss, wire.RCReadRequest, 1)}
		},
		stopped,
	},
	{
		"as many lost READ responses as may be in flight stop the port",
		func(p *bufferPlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Up, fault.Loss, wire.RCReadResponseOnly, p.depth)}
		},
		stopped,
	},
	{
		"a lost READ response leaves a frame in the ring, and all later frames go there",
		func(p *bufferPlan) {
			p.rules = []fault.Rule{stateFaultOn("ms1", fault.Up, fault.Loss, wire.RCReadResponseOnly, 1)}
		},
		func(r *bufferRun) bool { return r.count("remote") == 1 && r.count("lost") == 0 },
	},
	{
		"a response that arrives twice puts a frame into the place of another one",
		func(p *bufferPlan) {
			f := stateFaultOn("ms1", fault.Up, fault.Duplicate, wire.RCReadResponseOnly, 0)
			f.Probability, p.low, p.rate = 1, p.high, "10Gbit" // READs do not wait for the port
			p.rules = []fault.Rule{f}
		},
		func(r *bufferRun) bool { return r.oracle.err != nil },
	},
	{
		"a server that was restarted gives nothing back",
		func(p *bufferPlan) {
			p.fault, p.victim, p.when, p.down = stateNICCrash, "ms1", 300*time.Microsecond, time.Millisecond
		},
		stopped,
	},
}

// stopped reports whether frames stay in the ring, and the counters say nothing of a loss.
func stopped(r *bufferRun) bool {
	return r.count("remote") > 0 && r.count("lost") == 0 && r.oracle.arrived < r.sent/2
}

// Each hazard does its damage under a published rule. Under a hardened one the stream goes on, in
// order, and every frame that is lost is counted.
func TestBufferHazards(t *testing.T) {
	for _, h := range bufferHazards {
		t.Run(h.name, func(t *testing.T) {
			r, err := playBuffer(t, modePublished, Options{}, h.change)
			if err != nil || !h.damage(r) {
				t.Errorf("published: no damage: %v; %v; %v", err, r.oracle.err, r.counts())
			}
			r, err = playBuffer(t, modeHardened, Options{}, h.change)
			if err != nil || r.oracle.err != nil || r.count("remote") > 0 || r.plan.fault == stateCalm && r.count("loaded") == 0 {
				t.Errorf("hardened: %v; %v; %v", err, r.oracle.err, r.env.report.Notes)
			}
		})
	}
}

// Without faults the published buffer keeps the order and loses nothing. With one READ in flight a
// frame comes back once a round trip: over a long link the port is slower than its rate. With eight it
// is as fast as the hardened buffer.
func TestPublishedReadsInFlight(t *testing.T) {
	play := func(mode string, depth int) time.Duration {
		r, err := playBuffer(t, mode, Options{}, func(p *bufferPlan) {
			p.rack.Delay, p.high, p.low, p.frames, p.depth = 50*time.Microsecond, 16, 8, 50, depth
		})
		if err != nil || r.oracle.err != nil || r.oracle.arrived != r.sent {
			t.Fatalf("%s, %d in flight: %d of %d frames arrived: %v; %v; %v", mode, depth, r.oracle.arrived, r.sent, err, r.oracle.err, r.env.report.Notes)
		}
		return r.env.report.Virtual
	}
	hardened := play(modeHardened, 8)
	if one, eight := play(modePublished, 1), play(modePublished, 8); one < 3*hardened || eight > hardened*11/10 {
		t.Errorf("published takes %v with one READ in flight and %v with eight, hardened %v with eight", one, eight, hardened)
	}
}

// A rule gets another mode while frames wait. Both modes use the ring, over connections of their own,
// and every frame arrives in order or is counted as dropped.
func TestBufferChangesItsMode(t *testing.T) {
	for was, is := range map[string]string{modeHardened: modePublished, modePublished: modeHardened} {
		var run *bufferRun
		r, err := playBuffer(t, was, Options{}, func(p *bufferPlan) {
			p.high, p.low, p.gap, p.rate, p.frames, p.burst, p.change = 16, 8, 400*time.Microsecond, "200Mbit", 60, 1, changeModes
			p.begun = func(r *bufferRun) {
				run = r
				rule := p.bufferRule
				rule.mode = is
				r.env.rack.At(r.env.rack.Now().Add(3*time.Millisecond), func() { r.operator.set(&rule) })
			}
		})
		if err != nil || r != run {
			t.Fatalf("from %s: %v", was, err)
		}
		box := r.env.rack.Program().(*swordbox.Program)
		for _, g := range box.Counters(r.env.rack.Now()) {
			for _, c := range g.Counters {
				if strings.HasPrefix(g.Name, "buffer") && c.Name == "stored" && c.Value < 50 {
					t.Errorf("from %s: %s stored %d frames; %v", was, g.Name, c.Value, r.env.report.Notes)
				}
			}
		}
		if r.oracle.err != nil || r.count("lost") != 0 {
			t.Errorf("from %s: %v; %v", was, r.oracle.err, r.counts())
		}
	}
}

// In these seeds every action of the operator has an effect.
func TestBufferOperatorReachesEveryAction(t *testing.T) {
	t.Parallel()
	changes, modes, misfits, stored := 0, 0, 0, uint64(0)
	for seed := uint64(1); seed <= 20; seed++ {
		e := newEnv(Scenario{Name: "buffer"}, seed, Options{})
		p := new(bufferPlan).draw(e)
		p.change = changeModes
		r, err := p.begin(e)
		if err == nil {
			err = e.run()
		}
		if err == nil {
			err = r.judge()
		}
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		stored += r.count("stored")
		changes, modes, misfits = changes+r.operator.changes, modes+r.operator.modes, misfits+r.operator.misfits
		e.finish()
	}
	if t.Logf("%d changes, %d modes, %d misfits, %d stored", changes, modes, misfits, stored); changes < 100 || modes < 30 || misfits < 5 || stored < 1000 {
		t.Error("too little")
	}
}

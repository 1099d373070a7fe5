package kv

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// planned is a store whose operations take a known time in each phase.
type planned struct {
	*Map
	rt   *virtual
	line *Timeline
}

func (p *planned) Timeline() *Timeline { return p.line }

// in is in a phase for some time.
func (p *planned) in(phase Phase, d time.Duration, inside ...func()) {
	from := p.line.Enter(phase)
	for _, f := range inside {
		f()
	}
	p.rt.Sleep(d)
	p.line.Leave(from)
}

func (p *planned) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	for range maxTrips + 2 {
		p.in(PhaseTrip, 100)
		p.rt.Sleep(1)
	}
	return p.Map.Get(key, dst, deadline)
}

func (p *planned) Put(key uint64, value []byte, deadline clock.Time) error {
	p.in(PhaseLock, 1000, func() { p.in(PhaseTrip, 30) }, func() { p.line.Sleep(20) }, func() { p.in(PhaseTrip, 30) })
	p.in(PhaseTrip, 100)
	p.in(PhaseRPC, 5, func() { p.line.Sleep(7) })
	p.rt.Sleep(3)
	return p.Map.Put(key, value, deadline)
}

// Each moment of an operation counts for the phase that the client is in, and the phases add up to
// the latency. Round trips to a lock belong to the lock, pauses in it do not.
func TestBreakdown(t *testing.T) {
	rt := newVirtual()
	s := &planned{Map: NewMap(1000), rt: rt, line: NewTimeline(rt)}
	cfg := RunConfig{Workload: Workload{Read: 0.5, Update: 0.5}, Keys: 8, Value: 100, Clients: 1, Ops: 200, Patience: time.Second, Rate: 1e5}
	if _, err := Load(s, rt, cfg); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	cfg.Observe = func(d time.Duration) { took += d }
	res, err := Run(s, rt, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var spent time.Duration
	for k := range res.Spent {
		for _, d := range res.Spent[k] {
			spent += d
		}
	}
	if spent != took || took == 0 {
		t.Errorf("the phases add up to %v, the latencies to %v", spent, took)
	}
	n := time.Duration(res.Ops[KindRead])
	want := [phases]time.Duration{PhaseClient: n * (maxTrips + 2), PhaseQueue: res.Spent[KindRead][PhaseQueue], phases - 1: 2 * 100 * n}
	for i := range maxTrips {
		want[int(PhaseTrip)+i] += 100 * n
	}
	if res.Spent[KindRead] != want {
		t.Errorf("reads:\n%v, want\n%v", res.Spent[KindRead], want)
	}
	n = time.Duration(res.Ops[KindUpdate])
	want = [phases]time.Duration{
		PhaseClient: 3 * n, PhaseQueue: res.Spent[KindUpdate][PhaseQueue], PhaseLock: 1060 * n, PhaseBackOff: 27 * n, PhaseTrip: 100 * n, PhaseRPC: 5 * n,
	}
	if res.Spent[KindUpdate] != want {
		t.Errorf("updates:\n%v, want\n%v", res.Spent[KindUpdate], want)
	}
	sum := res.Summary()
	if len(sum.Breakdown) != 3 || sum.Breakdown[2].Kind != AllKinds || sum.Breakdown[1].Phases["lock"] != 1.06 || sum.Breakdown[0].Phases["lock"] != 0 {
		t.Errorf("%+v", sum.Breakdown)
	}
	// The result of several clients, also after its way to another process.
	b, err := json.Marshal(res)
	var twice Result
	if err == nil {
		err = json.Unmarshal(b, &twice)
	}
	twice.Merge(res)
	if err != nil || twice.Spent[KindUpdate][PhaseLock] != 2*want[PhaseLock] {
		t.Errorf("%v, %v", twice.Spent, err)
	}
	if len(Phases()) != phases {
		t.Errorf("%d of %d phases are reported", len(Phases()), phases)
	}
	if a := testing.AllocsPerRun(100, func() { s.in(PhaseTrip, 1); s.line.Sleep(1); s.line.end(1) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

// A store without timeline has no breakdown.
func TestNoBreakdown(t *testing.T) {
	rt := newVirtual()
	res, err := Load(NewMap(1000), rt, RunConfig{Keys: 8, Value: 100, Clients: 1})
	if err != nil || res.Summary().Breakdown != nil {
		t.Errorf("%+v, %v", res.Summary().Breakdown, err)
	}
}

// boxed is a runtime in whose switch requests stay.
type boxed struct {
	*virtual
	in time.Duration
}

func (b *boxed) InSwitch() time.Duration {
	in := b.in
	b.in = 0
	return in
}

// The time in the switch is taken out of the round trips and locks in which the requests were there,
// and of no other phase: a client that computes does not wait for the switch.
func TestPhaseSwitch(t *testing.T) {
	rt := &boxed{virtual: newVirtual()}
	line := NewTimeline(rt)
	in := func(p Phase, took, inSwitch time.Duration) {
		from := line.Enter(p)
		rt.Sleep(took)
		rt.in = inSwitch
		line.Leave(from)
	}
	line.begin(rt.Now())
	rt.in = 1 // of a request that an earlier operation did not wait for
	in(PhaseTrip, 100, 40)
	in(PhaseLock, 200, 20)
	in(PhaseRPC, 50, 7)
	in(PhaseTrip, 30, 80) // a request that is still in the switch when its time is over
	rt.in = 9
	rt.Sleep(10)
	want := [phases]time.Duration{PhaseSwitch: 40 + 20 + 30, PhaseTrip: 60, PhaseLock: 180, PhaseRPC: 50, PhaseClient: 10}
	if got := *line.end(rt.Now()); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

package kv

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// The sum of two results has all that each of them has, also after its way to another process.
func TestMerge(t *testing.T) {
	one := func(k Kind, add uint64, first string) *Result {
		r := &Result{
			Clients: 1, Span: time.Duration(add), FirstTry: 2 * add, Retries: 3 * add, RTTs: 4 * add, RPCs: 5 * add, NotFound: 6 * add,
			Failed: 7 * add, Wrong: 8 * add, Existed: 9 * add, FirstError: first,
		}
		r.Ops[k] = 10 * add
		r.record(k, time.Duration(add)*time.Millisecond)
		return r
	}
	sum := one(KindRead, 1, "")
	b, err := json.Marshal(one(KindDelete, 100, "an error"))
	if err != nil {
		t.Fatal(err)
	}
	var second Result
	if err := json.Unmarshal(b, &second); err != nil {
		t.Fatal(err)
	}
	sum.Merge(&second)
	sum.Merge(one(KindDelete, 0, "a later error"))
	want := Result{
		Clients: 3, Span: 100, FirstTry: 202, Retries: 303, RTTs: 404, RPCs: 505, NotFound: 606, Failed: 707, Wrong: 808, Existed: 909,
		FirstError: "an error",
	}
	want.Ops[KindRead], want.Ops[KindDelete] = 10, 1000
	got := *sum
	got.hist = want.hist
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if d := sum.Percentile(KindDelete, 100); d < 99*time.Millisecond || d > 101*time.Millisecond {
		t.Errorf("the longest DELETE took %v", d)
	}
	if d := sum.Percentile(KindUpdate, 100); d != 0 {
		t.Errorf("the longest of no PUTs took %v", d)
	}
}

// Latencies of a nanosecond and of more than the longest one are in the histograms as well.
func TestExtremeLatencies(t *testing.T) {
	var r Result
	r.note(KindRead, 1, Cost{})
	r.note(KindUpdate, 0, Cost{})
	r.note(KindDelete, time.Hour, Cost{})
	var sum Result
	sum.Merge(&r)
	for _, r := range []*Result{&r, &sum} {
		if a, b, c := r.Percentile(KindRead, 100), r.Percentile(KindUpdate, 100), r.Percentile(KindDelete, 100); a != 1 || b != 1 || c < maxLatency*99/100 || c > maxLatency*101/100 {
			t.Errorf("latencies of %v, %v and %v", a, b, c)
		}
	}
}

// Every number of a Summary is that of the result.
func TestSummary(t *testing.T) {
	r := &Result{Clients: 3, Span: 2 * time.Second, NotFound: 1, Failed: 2, Wrong: 4, Existed: 5, FirstError: "first"}
	for i := range 1000 {
		r.note(KindRead, time.Duration(i+1)*time.Microsecond, Cost{RTTs: 1, RPCs: 2})
	}
	for _, k := range []Kind{KindUpdate, KindInsert, KindReadModify, KindDelete} {
		r.note(k, time.Millisecond, Cost{RTTs: 250})
	}
	r.note(KindDelete, time.Millisecond, Cost{Retries: 7})
	r.note(KindScan, time.Millisecond, Cost{})
	r.record(queue, 50*time.Microsecond)
	s := r.Summary()
	latencies := s.Latencies
	s.Latencies = nil
	if want := (Summary{
		Clients: 3, Seconds: 2, Ops: 1006, Throughput: 503, FirstTry: 0.8, Retries: 7, RTTsPerOp: 2000.0 / 1006, RPCs: 2000,
		NotFound: 1, Failed: 2, Wrong: 4, Existed: 5, FirstError: "first",
	}); !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
	var rows []string
	for _, l := range latencies {
		rows = append(rows, l.Kind)
	}
	if want := []string{"read", "update", "insert", "scan", "read-modify-write", "delete", "queue"}; !reflect.DeepEqual(rows, want) {
		t.Fatalf("rows %q, want %q", rows, want)
	}
	// Two digits of precision: a bucket of the histogram has 8 µs up to 2 ms.
	l := latencies[0]
	for _, c := range []struct{ got, want float64 }{{l.P50, 500}, {l.P90, 900}, {l.P99, 990}, {l.P999, 999}, {l.Max, 1000}, {latencies[6].Max, 50}} {
		if c.got < c.want || c.got > c.want+c.want/100 {
			t.Errorf("a percentile is %g µs, want %g", c.got, c.want)
		}
	}
	if l.Ops != 1000 || latencies[6].Ops != 1 || latencies[5].Ops != 2 {
		t.Errorf("%+v", latencies)
	}
}

// Of nothing there is no throughput, no round trip and no lost race.
func TestSummaryOfNothing(t *testing.T) {
	s := new(Result).Summary()
	if !reflect.DeepEqual(s, Summary{FirstTry: 1}) {
		t.Errorf("%+v", s)
	}
	r := &Result{}
	if r.note(KindRead, 5, Cost{RTTs: 3}); r.Throughput() != 0 || r.Summary().RTTsPerOp != 3 {
		t.Errorf("%+v", r.Summary())
	}
	r.Span = 1
	if r.Throughput() < 0.99e9 {
		t.Errorf("one operation in a nanosecond: %g a second", r.Throughput())
	}
}

// The phases of a kind add up to the mean, those of all kinds to the mean of all operations. A wait
// in the queue of an open loop is a phase. Kinds without phases have no row.
func TestBreakdownAddsUp(t *testing.T) {
	var r Result
	spent := func(client, trip time.Duration) *[phases]time.Duration {
		var p [phases]time.Duration
		p[PhaseClient], p[PhaseTrip] = client, trip
		return &p
	}
	r.note(KindRead, 0, Cost{})
	r.spend(KindRead, 4000, spent(2000, 1))
	r.note(KindUpdate, 0, Cost{})
	r.note(KindUpdate, 0, Cost{})
	r.spend(KindUpdate, 0, spent(0, 3000))
	r.spend(KindUpdate, 0, spent(0, 5000))
	r.note(KindDelete, 0, Cost{})
	r.spend(KindInsert, 0, spent(0, 9000)) // was not counted
	want := []Breakdown{
		{"read", 1, 6.001, map[string]float64{"client": 2, "queue": 4, "trip 1": 0.001}},
		{"update", 2, 4, map[string]float64{"trip 1": 4}},
		{AllKinds, 4, (6.001 + 8) / 4, map[string]float64{"client": 0.5, "queue": 1, "trip 1": 8.001 / 4}},
	}
	got := r.Summary().Breakdown
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range got {
		sum := 0.0
		for name, usec := range got[i].Phases {
			if sum += usec; !near(usec*1e4, want[i].Phases[name]*1e4) {
				t.Errorf("%s: phase %s takes %g", got[i].Kind, name, usec)
			}
		}
		if got[i].Kind != want[i].Kind || got[i].Ops != want[i].Ops || !near(got[i].Mean*1e4, want[i].Mean*1e4) || len(got[i].Phases) != len(want[i].Phases) || !near(sum, got[i].Mean) {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// A load has a breakdown as a run has, without what came before it.
func TestLoadHasABreakdown(t *testing.T) {
	rt := newVirtual()
	s := &phased{Map: NewMap(1000), rt: rt, line: NewTimeline(rt)}
	rt.now = clock.Time(time.Hour)
	res, err := Load(s, rt, RunConfig{Keys: 4, Value: 100, Clients: 1})
	if err != nil || res.Clients != 1 || res.Spent[KindInsert] != ([phases]time.Duration{PhaseTrip: 4 * 70, PhaseClient: 4 * 5}) {
		t.Errorf("%+v, %v", res, err)
	}
	if rows := res.Summary().Breakdown; len(rows) != 2 || rows[0].Kind != "insert" || rows[1].Kind != AllKinds || rows[1].Ops != 4 {
		t.Errorf("%+v", rows)
	}
}

// phased is a store whose inserts take a round trip.
type phased struct {
	*Map
	rt   *virtual
	line *Timeline
}

func (p *phased) Timeline() *Timeline { return p.line }

func (p *phased) Insert(key uint64, value []byte, deadline clock.Time) error {
	from := p.line.Enter(PhaseTrip)
	p.rt.Sleep(70)
	p.line.Leave(from)
	p.rt.Sleep(5)
	return p.Map.Insert(key, value, deadline)
}

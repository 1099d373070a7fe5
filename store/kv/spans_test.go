package kv

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// The first counted operations of a client are recorded, each with its phases in their order and
// inside of its time, also those that fail; what is recorded survives its way to another process.
func TestSpans(t *testing.T) {
	rt := newVirtual()
	s := &planned{Map: NewMap(1000), rt: rt, line: NewTimeline(rt)}
	cfg := RunConfig{Workload: Workload{Read: 0.5, Update: 0.5}, Keys: 8, Value: 100, Clients: 3, Client: 2, Ops: 50, Rate: 1e5, Warmup: time.Millisecond, Spans: 7}
	if _, err := Load(s, rt, RunConfig{Keys: 7, Value: 100, Clients: 1}); err != nil { // key 7 is missing
		t.Fatal(err)
	}
	began := rt.Now()
	res, err := Run(s, rt, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(res)
	got := new(Result)
	if err == nil {
		err = json.Unmarshal(b, got)
	}
	if err != nil || len(got.Spans) != cfg.Spans {
		t.Fatalf("%d spans: %v", len(got.Spans), err)
	}
	failed := 0
	for i := range got.Spans {
		op := &got.Spans[i]
		if op.Begin < began.Add(cfg.Warmup) || op.Client != 2 || i > 0 && op.Begin < got.Spans[i-1].Begin {
			t.Errorf("%+v", op)
		}
		if op.Error != "" {
			failed++
		}
		at, trips := op.Begin, 0
		for _, p := range op.Parts {
			if p.Begin < at || p.End <= p.Begin || p.End > op.End || p.Phase == PhaseClient {
				t.Errorf("%+v of %+v", p, op)
			}
			if at = p.End; p.Phase >= PhaseTrip {
				trips++
			}
		}
		if want := map[Kind]int{KindRead: maxTrips + 2, KindUpdate: 1}[op.Kind]; trips != want {
			t.Errorf("%v has %d round trips, want %d", op.Kind, trips, want)
		}
	}
	if failed == len(got.Spans) {
		t.Error("all failed")
	}
	now := time.Now()
	begin := got.Spans[0].Begin
	got.Stamp(now, begin)
	if p := got.Spans[0].Parts; got.Spans[0].Begin != clock.Time(now.UnixNano()) || p[0].Begin < got.Spans[0].Begin || p[0].End > got.Spans[0].End {
		t.Errorf("%+v", got.Spans[0])
	}
	got.Merge(res)
	if len(got.Spans) != 2*cfg.Spans {
		t.Errorf("%d spans of two clients", len(got.Spans))
	}
	// Nothing is recorded that was not asked for.
	cfg.Spans = 0
	if res, err := Run(s, rt, cfg, nil); err != nil || len(res.Spans) != 0 || len(s.line.parts.list) != 0 {
		t.Errorf("%d spans, %v", len(res.Spans), err)
	}
	if cfg.Spans = MaxSpans + 1; cfg.Validate() == nil {
		t.Error("too many spans are valid")
	}
}

// An operation with very many phases keeps the first ones and says how many there were.
func TestPartsAreBounded(t *testing.T) {
	p := parts{on: true}
	for i := range clock.Time(maxParts + 5) {
		p.add(PhaseTrip, i, i+1, 0)
		p.add(PhaseClient, i, i+1, 0)
	}
	if len(p.list) != maxParts || p.more != 5 {
		t.Errorf("%d and %d more", len(p.list), p.more)
	}
}

// A store without timeline has spans without phases; the wait of an operation that was due earlier
// is known all the same.
func TestSpansWithoutTimeline(t *testing.T) {
	rt := newVirtual()
	s := &slowMap{NewMap(1000), rt}
	cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 8, Value: 100, Clients: 1, Ops: 50, Rate: 1e6, Spans: 50}
	if _, err := Load(s, rt, cfg); err != nil {
		t.Fatal(err)
	}
	res, err := Run(s, rt, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := res.Spans[49]
	if len(last.Parts) != 1 || last.Parts[0].Phase != PhaseQueue || last.End.Sub(last.Parts[0].End) != 2*time.Microsecond {
		t.Errorf("%+v", last)
	}
}

// slowMap answers a GET after two microseconds.
type slowMap struct {
	*Map
	rt *virtual
}

func (s *slowMap) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	s.rt.Sleep(2 * time.Microsecond)
	return s.Map.Get(key, dst, deadline)
}

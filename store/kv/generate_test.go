package kv

import (
	"slices"
	"testing"
	"time"
)

// Generated operations are those of all clients in the order of time: each client begins within the
// time between two of its operations, and then has one each time.
func TestGenerate(t *testing.T) {
	for rate, period := range map[float64]time.Duration{0: time.Millisecond, 0.5: 2 * time.Second, 1000: time.Millisecond} {
		cfg := RunConfig{Workload: Workload{Update: 1}, Keys: 100, Clients: 4, Rate: rate, Value: 30}
		ops := Generate(cfg, 10, 7, nil)
		if len(ops) != 10 || !slices.IsSortedFunc(ops, func(a, b Op) int { return int(a.At - b.At) }) {
			t.Errorf("%+v", ops)
		}
		own := map[int][]Op{}
		for _, op := range ops {
			own[op.Client] = append(own[op.Client], op)
			if op.Kind != KindUpdate || op.Size != 30 || op.Key >= 100 {
				t.Errorf("%+v", op)
			}
		}
		begins := map[time.Duration]bool{}
		for client := range 4 {
			list := own[client]
			if want := []int{3, 3, 2, 2}[client]; len(list) != want {
				t.Fatalf("client %d has %d operations, want %d", client, len(list), want)
			}
			if begins[list[0].At] = true; list[0].At >= period {
				t.Errorf("client %d begins at %v", client, list[0].At)
			}
			for i := 1; i < len(list); i++ {
				if list[i].At-list[i-1].At != period {
					t.Errorf("client %d at %v and %v", client, list[i-1].At, list[i].At)
				}
			}
		}
		if len(begins) != 4 {
			t.Errorf("clients begin at %v", begins)
		}
		if !slices.Equal(ops, Generate(cfg, 10, 7, nil)) || slices.Equal(ops, Generate(cfg, 10, 8, nil)) {
			t.Error("the seed does not decide the operations")
		}
	}
	if few := Generate(RunConfig{Workload: Workload{Read: 1}, Keys: 5, Clients: 8}, 3, 1, nil); len(few) != 3 || few[0].Size != 0 {
		t.Errorf("%+v", few)
	}
}

// Generated operations use a client's own keys as those of a run do: each insert has a new key, with
// ShapeOwn one key comes after the other, and popular keys move.
func TestGeneratedKeys(t *testing.T) {
	cfg := RunConfig{Workload: Workload{Insert: 1}, Keys: 100, Clients: 3}
	seen := map[uint64]bool{}
	for _, op := range Generate(cfg, 60, 1, nil) {
		if seen[op.Key] || op.Key < 100 || (op.Key-100)%MaxClients != uint64(op.Client) || op.Size != MinValue {
			t.Errorf("%+v", op)
		}
		seen[op.Key] = true
	}
	cfg.Workload, cfg.Popularity = Workload{Read: 0.5, Insert: 0.5, Latest: true}, Popularity{Shape: ShapeLatest}
	inserted := map[uint64]bool{}
	for _, op := range Generate(cfg, 300, 1, nil) {
		switch {
		case op.Kind == KindInsert:
			inserted[op.Key] = true
		case op.Key >= 100 && !inserted[op.Key]:
			t.Errorf("%+v, which is not inserted yet", op)
		}
	}
	cfg.Workload, cfg.Popularity = Workload{Read: 1}, Popularity{Shape: ShapeOwn}
	seen = map[uint64]bool{}
	for _, op := range Generate(cfg, 100, 1, nil) {
		if seen[op.Key] || op.Key%3 != uint64(op.Client) {
			t.Errorf("%+v", op)
		}
		seen[op.Key] = true
	}
}

// A replay's span is that of its counted operations, and a warmup is not counted. A pace below 1 is
// slower than recorded.
func TestReplaySpan(t *testing.T) {
	ops := make([]Op, 5)
	for i := range ops {
		ops[i] = Op{At: time.Duration(i) * time.Millisecond, Kind: KindRead}
	}
	for _, c := range []struct {
		pace         float64
		warmup, span time.Duration
		counted      uint64
	}{
		{0, 0, 500 * time.Microsecond, 5},
		{1, 0, 4100 * time.Microsecond, 5},
		{0.5, 0, 8100 * time.Microsecond, 5},
		{1, 2 * time.Millisecond, 2100 * time.Microsecond, 3},
		{1, time.Second, 0, 0},
	} {
		s := newNoted(1)
		res, err := Replay(s, s.rt, RunConfig{Clients: 1, Pace: c.pace, Warmup: c.warmup}, ops, nil)
		if err != nil || res.Span != c.span || res.Total() != c.counted || len(s.starts) != 5 {
			t.Errorf("pace %g after %v: %d operations in %v, want %d in %v; %v", c.pace, c.warmup, res.Total(), res.Span, c.counted, c.span, err)
		}
		want := 1
		switch {
		case c.counted == 0:
			want = 0
		case c.pace > 0:
			want = 2
		}
		if rows := res.Summary().Latencies; len(rows) != want {
			t.Errorf("pace %g: rows %+v, want %d", c.pace, rows, want)
		}
	}
	for n := range 2 {
		s := newNoted(1)
		if res, err := Replay(s, s.rt, RunConfig{Clients: 1}, ops[:n], nil); err != nil || res.Total() != uint64(n) {
			t.Errorf("%d operations: %+v, %v", n, res, err)
		}
	}
}

// Moved popular keys are as many as before, after each single operation and nanosecond. Scrambled
// keys of a Zipf distribution are others than the smallest.
func TestMovedAndScrambledKeys(t *testing.T) {
	all := Popularity{Shape: ShapeHotspot, HotKeys: 1, HotOps: 1}
	for _, p := range []Popularity{{MoveOps: 1}, {MoveTime: 1}} {
		all.MoveOps, all.MoveTime = p.MoveOps, p.MoveTime
		for moves := range 4 {
			for k, share := range drawn(RunConfig{Keys: 50, Clients: 1, Popularity: all}, time.Duration(moves), uint64(moves)) {
				if !near(share, 0.02) {
					t.Errorf("after %d moves, key %d gets %g", moves, k, share)
				}
			}
		}
		hot := RunConfig{Keys: 50, Clients: 1, Zipf: 1.5, Popularity: p}
		if a, b := drawn(hot, 0, 0), drawn(hot, 1, 1); a[0] < 0.3 || b[0] > 0.3 {
			t.Errorf("the hottest key gets %g, and after one move %g", a[0], b[0])
		}
	}
	for _, shape := range []string{"", ShapeZipf} {
		got := drawn(RunConfig{Keys: 50, Clients: 1, Zipf: 1.5, Scramble: true, Popularity: Popularity{Shape: shape}}, 0, 0)
		if got[0] > 0.3 || slices.Max(got) < 0.3 {
			t.Errorf("scrambled keys get %v", got)
		}
	}
}

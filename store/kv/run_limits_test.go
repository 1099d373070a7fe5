package kv

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The search for inserted keys ends if the memory was lost.
func TestSearchForInsertedKeysEnds(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 10)
	n := 0
	s.fail = func(Kind, uint64) error {
		if n++; n > 1000 {
			t.Fatal("more than 1000 operations")
		}
		return ErrLost
	}
	stop := func() bool { return n > 50 }
	_, _ = Run(s, rt, RunConfig{Workload: workload(t, "d"), Keys: 10, Clients: 1, Duration: time.Second}, stop)
}

// Another error of the search is the error of the run, and stop ends the search.
func TestSearchForInsertedKeysFails(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 10)
	cfg := RunConfig{Workload: workload(t, "d"), Keys: 10, Clients: 1, Ops: 10}
	s.fail = func(Kind, uint64) error { return ErrTimeout }
	if _, err := Run(s, rt, cfg, nil); !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	reads := 0
	s.fail = func(Kind, uint64) error { reads++; return nil }
	if res, err := Run(s, rt, cfg, func() bool { return true }); err != nil || res.Total() > 0 || reads > 0 {
		t.Errorf("stopped: %d reads, %+v, %v", reads, res, err)
	}
}

// keyCounts draws a million keys.
func keyCounts(cfg RunConfig) []int {
	c, r := cfg.chooser(), rand.New(rand.NewPCG(3, 4))
	got := make([]int, cfg.Keys)
	for range 1_000_000 {
		got[c.draw(r, 0, 0)]++
	}
	return got
}

// Scrambled keys of a uniform distribution are uniform.
func TestScrambledUniformIsUniform(t *testing.T) {
	got := keyCounts(RunConfig{Keys: 1000, Clients: 1, Scramble: true, Popularity: popularity(t, "uniform")})
	zero, most := 0, 0
	for _, n := range got {
		if n == 0 {
			zero++
		}
		most = max(most, n)
	}
	if zero > 0 || most > 1300 {
		t.Errorf("uniform, scrambled: %d of 1000 keys are never used, the most used one %d times of 1000 expected", zero, most)
	}
}

// A scrambled hotspot has as many hot keys as without.
func TestScrambledHotspotKeepsItsShares(t *testing.T) {
	cfg := RunConfig{Keys: 1000, Clients: 1, Scramble: true, Popularity: popularity(t, "hotspot:20%:80%")}
	got := keyCounts(cfg)
	hot, used, sum := 0, 0, 0
	for _, n := range got {
		if n > 0 {
			used++
		}
		if n > 2000 { // hot: 4000 expected; cold: 250
			hot++
			sum += n
		}
	}
	if hot != 200 || used != 1000 {
		t.Errorf("hotspot:20%%:80%%, scrambled: %d keys are hot and get %.1f%%; want 200 and 80%%; %d of 1000 keys are used", hot, float64(sum)/1e4, used)
	}
}

// Scrambling leaves the newest keys the most popular ones.
func TestScrambleKeepsLatest(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 1000)
	late, reads := 0, 0
	cfg := RunConfig{Workload: workload(t, "d"), Keys: 1000, Clients: 1, Ops: 5000, Zipf: 0.99, Scramble: true}
	s.fail = func(op Kind, key uint64) error {
		if op == KindRead {
			if reads++; key >= 1000 {
				late++
			}
		}
		return nil
	}
	_, _ = Run(s, rt, cfg, nil)
	a := late * 100 / reads
	late, reads, cfg.Scramble = 0, 0, false
	s2 := newTable(rt, 1000)
	s2.fail = s.fail
	_, _ = Run(s2, rt, cfg, nil)
	b := late * 100 / reads
	if a < b*9/10 {
		t.Errorf("latest: %d%% of reads use inserted keys; with scramble %d%%", b, a)
	}
}

// permute is a permutation for every number of keys.
func TestPermute(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 4097} {
		seen := map[uint64]bool{}
		for k := range n {
			p := permute(k, n, scrambleSeed)
			if p >= n || seen[p] {
				t.Fatalf("%d of %d becomes %d, seen before: %v", k, n, p, seen[p])
			}
			seen[p] = true
		}
	}
}

// Numbers that are none, or make no sense, are refused.
func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	ok := RunConfig{Workload: workload(t, "a"), Keys: 10, Clients: 1, Duration: time.Second}
	for _, f := range []func(c *RunConfig){
		func(c *RunConfig) { c.Zipf = math.NaN() },
		func(c *RunConfig) { c.Rate = math.NaN() },
		func(c *RunConfig) { c.Rate = math.Inf(1) },
		func(c *RunConfig) { c.Rate = 2e9 },
		func(c *RunConfig) { c.Pace = math.NaN() },
		func(c *RunConfig) { c.Rate = 1e-9 },
		func(c *RunConfig) { c.Pace = math.Inf(1) },
	} {
		c := ok
		if f(&c); c.Validate() == nil {
			t.Errorf("zipf %g, rate %g, pace %g: accepted", c.Zipf, c.Rate, c.Pace)
		}
	}
}

func TestWorkloadNames(t *testing.T) {
	for _, text := range []string{"50abc", "NaN", "-1", "101", "50%%"} {
		if w, err := FindWorkload(text); err == nil {
			t.Errorf("workload %q: %+v", text, w)
		}
	}
	if w, err := FindWorkload("5%"); err != nil || w.Update != 0.05 || w.Doc != "5% updates" {
		t.Errorf("workload 5%%: %+v, %v", w, err)
	}
	if w, err := ParseMix("get=70%,put=30"); err != nil || w.Read != 0.7 {
		t.Errorf("mix with %%: %+v, %v", w, err)
	}
}

// Generate ends when it is told to.
func TestGenerateStops(t *testing.T) {
	calls := 0
	ops := Generate(RunConfig{Workload: workload(t, "a"), Keys: 10, Clients: 4}, 1000, 1, func() bool { calls++; return calls > 10 })
	if len(ops) != 10 {
		t.Errorf("%d operations", len(ops))
	}
}

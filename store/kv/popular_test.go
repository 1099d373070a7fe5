package kv

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// drawn counts how often each key is drawn.
func drawn(cfg RunConfig, since time.Duration, ops uint64) []float64 {
	c, r := cfg.chooser(), rand.New(rand.NewPCG(3, 4))
	got := make([]float64, cfg.Keys)
	for range 100_000 {
		got[c.draw(r, since, ops)] += 1e-5
	}
	return got
}

func sumOf(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.01 }

func popularity(t *testing.T, text string) Popularity {
	t.Helper()
	p, err := ParsePopularity(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHotspot(t *testing.T) {
	got := drawn(RunConfig{Keys: 50, Clients: 1, Popularity: popularity(t, "hotspot:20%:0.8")}, 0, 0)
	if hot := sumOf(got[:10]); !near(hot, 0.8) || !near(got[0], 0.08) || !near(got[49], 0.2/40) {
		t.Errorf("the hot fifth gets %g, the first key %g, the last %g", hot, got[0], got[49])
	}
	for _, all := range []string{"hotspot:1:0.3", "hotspot:0.001:1", "hotspot:1:0"} {
		got := drawn(RunConfig{Keys: 7, Clients: 1, Popularity: popularity(t, all)}, 0, 0)
		if sum := sumOf(got); !near(sum, 1) || strings.HasPrefix(all, "hotspot:1:") && !near(got[6], 1.0/7) || all == "hotspot:0.001:1" && got[0] < 0.99 {
			t.Errorf("%s: %v", all, got)
		}
	}
}

func TestUniformIgnoresZipf(t *testing.T) {
	got := drawn(RunConfig{Keys: 10, Clients: 1, Zipf: 0.99, Popularity: popularity(t, "uniform")}, 0, 0)
	for k, share := range got {
		if !near(share, 0.1) {
			t.Errorf("key %d gets %g", k, share)
		}
	}
}

// The popular keys move to others, to the same ones for every client, and are as popular there.
func TestMovingHotSpot(t *testing.T) {
	best := func(cfg RunConfig, since time.Duration, ops uint64) (key int) {
		got := drawn(cfg, since, ops)
		for k := range got {
			if got[k] > got[key] {
				key = k
			}
		}
		if hottest := drawn(RunConfig{Keys: cfg.Keys, Clients: 1, Zipf: cfg.Zipf}, 0, 0)[0]; !near(got[key], hottest) {
			t.Errorf("after %v and %d operations the hottest key gets %g, at the beginning %g", since, ops, got[key], hottest)
		}
		return key
	}
	p := Popularity{}
	if err := p.ParseMove("2s"); err != nil {
		t.Fatal(err)
	}
	byTime := RunConfig{Keys: 1000, Clients: 4, Zipf: 0.99, Popularity: p}
	a, b, c := best(byTime, 0, 0), best(byTime, 1999*time.Millisecond, 1000), best(byTime, 2*time.Second, 0)
	if a != 0 || b != 0 || c == 0 {
		t.Errorf("the hottest keys are %d, %d and, after a move, %d", a, b, c)
	}
	byTime.Client = 3
	if d := best(byTime, 3*time.Second, 7); d != c {
		t.Errorf("client 3 moves to key %d, the others to %d", d, c)
	}
	p = Popularity{}
	if err := p.ParseMove("400"); err != nil {
		t.Fatal(err)
	}
	byOps := RunConfig{Keys: 1000, Clients: 4, Zipf: 0.99, Popularity: p}
	if a, b, c := best(byOps, 0, 99), best(byOps, 0, 100), best(byOps, 0, 200); a != 0 || b == 0 || c == b {
		t.Errorf("by operations the hottest keys are %d, %d and %d", a, b, c)
	}
}

// Latest works with every workload that inserts.
func TestLatestByName(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 100)
	late := 0
	s.fail = func(op Kind, key uint64) error {
		if op == KindRead && key >= 100 {
			late++
		}
		return nil
	}
	cfg := RunConfig{Workload: Workload{Read: 0.5, Insert: 0.5}, Keys: 100, Clients: 1, Ops: 2000, Zipf: 0.99, Popularity: popularity(t, "latest")}
	res, err := Run(s, rt, cfg, nil)
	if err != nil || res.NotFound+res.Failed > 0 || late < 900 {
		t.Errorf("%d reads of inserted keys; %+v, %v", late, res, err)
	}
	cfg.Workload.Latest, cfg.Popularity.Shape, late = true, ShapeZipf, -10 // the search for inserted keys reads a few
	if _, err = Run(newTable(rt, 100), rt, cfg, nil); err != nil || late > 10 {
		t.Errorf("distribution zipf, given for a workload with latest: %d reads of inserted keys; %v", late, err)
	}
}

func TestMix(t *testing.T) {
	w, err := ParseMix("get=60, put=20,insert=5,delete=10,rmw=5")
	if err != nil || w.Read != 0.6 || w.Update != 0.2 || w.Insert != 0.05 || w.Delete != 0.1 || w.ReadModify != 0.05 {
		t.Fatalf("%+v, %v", w, err)
	}
	rt := newVirtual()
	s := newTable(rt, 50)
	res, err := Run(s, rt, RunConfig{Workload: w, Keys: 50, Clients: 1, Ops: 10_000, Zipf: 0.5, Verify: true}, nil)
	if err != nil || res.Failed+res.Wrong+res.Existed > 0 || res.NotFound == 0 || res.Total() != 10_000 {
		t.Errorf("%+v, %v", res, err)
	}
	for kind, share := range map[Kind]float64{KindRead: 0.6, KindUpdate: 0.2, KindInsert: 0.05, KindDelete: 0.1, KindReadModify: 0.05} {
		if got := float64(res.Ops[kind]) / 10_000; math.Abs(got-share) > 0.015 {
			t.Errorf("%v is %g of the operations, want %g", kind, got, share)
		}
	}
	for text, want := range map[string]string{
		"": "unknown operation", "get": "no percentage", "get=50": "add up to 50", "get=50,get=50": "twice", "get=101": "no percentage",
		"get=NaN": "no percentage", "fly=100": "unknown operation", "get=-5,put=105": "no percentage",
	} {
		if _, err := ParseMix(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Without deletes in the mix a missing key is no regular answer.
func TestMissesWithoutDeletes(t *testing.T) {
	rt := newVirtual()
	res, err := Run(newTable(rt, 5), rt, RunConfig{Workload: workload(t, "a"), Keys: 10, Clients: 1, Duration: time.Second}, nil)
	if err != nil || res.NotFound == 0 || res.FirstError == "" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestPopularityRefused(t *testing.T) {
	for _, bad := range []string{"", "hot", "hotspot", "hotspot:1", "hotspot:0:1", "hotspot:2:1", "hotspot:0.1:NaN", "hotspot:10%:101%", "zipf:1"} {
		if p, err := ParsePopularity(bad); err == nil || !strings.Contains(err.Error(), "want zipf, uniform") {
			t.Errorf("%q: %+v, %v", bad, p, err)
		}
	}
	for _, bad := range []string{"", "0", "-5s", "0s", "often"} {
		if err := new(Popularity).ParseMove(bad); err == nil || !strings.Contains(err.Error(), "like 5s") {
			t.Errorf("move %q: %v", bad, err)
		}
	}
	ok := RunConfig{Workload: workload(t, "a"), Keys: 10, Clients: 1, Ops: 1}
	for _, p := range []Popularity{
		{Shape: ShapeLatest, MoveOps: 1}, {Shape: ShapeUniform, MoveTime: 1}, {Shape: "x"}, {Shape: ShapeHotspot}, {MoveTime: -1},
	} {
		c := ok
		if c.Popularity = p; c.Validate() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

func TestSizes(t *testing.T) {
	mean := func(text string) (mean float64, least, most int) {
		s, err := ParseSizes(text, strconv.Atoi)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(5, 6))
		least = s.Max
		for range 50_000 {
			n := s.draw(r)
			mean, least, most = mean+float64(n)/50_000, min(least, n), max(most, n)
		}
		return mean, least, most
	}
	for _, c := range []struct {
		text        string
		mean        float64
		least, most int
	}{
		{"100", 100, 100, 100},
		{"100-200", 150, 100, 200},
		{"zipf:0:100-200", 150, 100, 200},
		{"50=1,100=3", 87.5, 50, 100},
		{"50=0,100=3", 100, 100, 100},
	} {
		m, least, most := mean(c.text)
		if math.Abs(m-c.mean) > 1 || least != c.least || most != c.most {
			t.Errorf("%s: sizes from %d to %d, mean %g; want %d to %d, mean %g", c.text, least, most, m, c.least, c.most, c.mean)
		}
	}
	if m, least, most := mean("zipf:1:100-1000"); m > 350 || m < 200 || least != 100 || most < 900 {
		t.Errorf("zipf: sizes from %d to %d, mean %g", least, most, m)
	}
	// The clients of a run write these sizes, also in the load, and the values are right.
	s, err := ParseSizes("20-400", strconv.Atoi)
	if err != nil {
		t.Fatal(err)
	}
	rt := newVirtual()
	tab := newTable(rt, 0)
	cfg := RunConfig{Workload: workload(t, "a"), Keys: 200, Clients: 1, Ops: 2000, Sizes: s, Verify: true}
	if _, err := Load(tab, rt, cfg); err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, v := range tab.data {
		if len(v) > 200 {
			long++
		}
	}
	res, err := Run(tab, rt, cfg, nil)
	if err != nil || res.Wrong+res.Failed > 0 || long < 60 || long > 140 {
		t.Errorf("%d of 200 values are longer than 200; %+v, %v", long, res, err)
	}
}

// No text makes the parsers panic, and what they accept can be used.
func FuzzParameters(f *testing.F) {
	for _, s := range []string{"100", "64-4096", "zipf:0.99:64-4096", "64=50,1024=30", "hotspot:20%:80%", "get=50,put=50", "5s", "latest"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := rand.New(rand.NewPCG(1, 1))
		if s, err := ParseSizes(text, strconv.Atoi); err == nil {
			for range 10 {
				if n := s.draw(r); n < s.Min || n > s.Max {
					t.Errorf("%q: size %d", text, n)
				}
			}
		}
		cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 10, Clients: 3, Ops: 1}
		var err error
		if cfg.Popularity, err = ParsePopularity(text); err != nil {
			cfg.Popularity = Popularity{}
			_ = cfg.Popularity.ParseMove(text) // the zero value is left if it fails
		}
		if cfg.Validate() == nil {
			for i := range uint64(10) {
				if k := cfg.chooser().draw(r, time.Duration(i)*time.Second, i); k >= 10 {
					t.Errorf("%q: key %d", text, k)
				}
			}
		}
		if w, err := ParseMix(text); err == nil {
			_ = w.pick(r.Float64())
		}
	})
}

// With ShapeOwn, a client uses its part of the loaded keys alone, one after the other: it deletes
// each of them once, and then finds none.
func TestOwnKeys(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 10)
	s.fail = func(_ Kind, key uint64) error {
		if key%2 != 1 || key >= 10 {
			t.Errorf("key %d belongs to another client", key)
		}
		return nil
	}
	cfg := RunConfig{
		Workload: Workload{Read: 0.5, Update: 0.5}, Popularity: Popularity{Shape: ShapeOwn}, Keys: 10, Clients: 2, Client: 1, Ops: 100,
	}
	if res, err := Run(s, rt, cfg, nil); err != nil || res.Total() != 100 || res.NotFound != 0 {
		t.Errorf("%+v %v", res, err)
	}
	cfg.Workload, cfg.Ops = Workload{Delete: 1}, 5
	if res, err := Run(s, rt, cfg, nil); err != nil || res.Ops[KindDelete] != 5 || res.NotFound != 0 || len(s.data) != 5 {
		t.Errorf("%+v %v, %d keys are left", res, err, len(s.data))
	}
	if res, err := Run(s, rt, cfg, nil); err != nil || res.NotFound != 5 {
		t.Errorf("%+v %v", res, err)
	}
}

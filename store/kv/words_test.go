package kv

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Reports say in words which keys are popular.
func TestPopularInWords(t *testing.T) {
	for _, c := range []struct {
		cfg  RunConfig
		want string
	}{
		{RunConfig{Zipf: 0.99}, "Zipf 0.99"},
		{RunConfig{Zipf: 0.99, Workload: Workload{Latest: true}}, "latest, Zipf 0.99"},
		{RunConfig{Zipf: 0.99, Popularity: Popularity{Shape: ShapeUniform}}, "uniform"},
		{RunConfig{Popularity: Popularity{Shape: ShapeHotspot, HotKeys: 0.2, HotOps: 0.8}}, "hotspot 20%:80%"},
		{RunConfig{Popularity: Popularity{MoveTime: 1}}, "Zipf 0, moves every 1ns"},
		{RunConfig{Popularity: Popularity{MoveTime: 2 * time.Second, MoveOps: 1}}, "Zipf 0, moves every 2s, moves every 1 operations"},
		{RunConfig{Zipf: 1, Popularity: Popularity{MoveOps: 400}}, "Zipf 1, moves every 400 operations"},
	} {
		if got := c.cfg.Popular(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Sizes are described in words. What is described can be parsed again.
func TestSizesInWords(t *testing.T) {
	for text, want := range map[string]string{
		"100":           "100 bytes",
		"0":             "0 bytes",
		"64-100":        "64 to 100 bytes",
		"zipf:0:1-2":    "1 to 2 bytes",
		"zipf:0.5:1-2":  "1 to 2 bytes by Zipf 0.5",
		"zipf:1.5:1-2":  "1 to 2 bytes by Zipf 1.5",
		"64=50,8=0.5":   "64=50,8=0.5 bytes",
		"64=1":          "64=1 bytes",
		" 64 = 1,8 = 2": "64=1,8=2 bytes",
		"0-1073741824":  "0 to 1073741824 bytes",
	} {
		s, err := ParseSizes(text, strconv.Atoi)
		if err != nil || s.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, s, err, want)
		}
	}
}

// Sizes that make no sense are refused, with the reason.
func TestSizesRefused(t *testing.T) {
	list := strings.Repeat("8=1,", maxSizes)
	if s, err := ParseSizes(strings.TrimSuffix(list, ","), strconv.Atoi); err != nil || len(s.List) != maxSizes || s.Min != 8 || s.Max != 8 {
		t.Errorf("%d sizes: %v", maxSizes, err)
	}
	for text, want := range map[string]string{
		"x":             "invalid syntax",
		"5-x":           "invalid syntax",
		"x-5":           "invalid syntax",
		"-5":            "invalid syntax",
		"6-5":           "the smallest comes first",
		"0-1073741825":  "want 0 to 1073741824",
		"zipf:x:5-6":    `exponent "x" is no number`,
		"zipf:1.6:5-6":  "exponent 1.6",
		"zipf:-0.1:5-6": "exponent -0.1",
		"zipf:NaN:5-6":  "exponent NaN",
		"5=x":           `share "x" of size 5 is no number`,
		"x=5":           "invalid syntax",
		"5=-1,6=2":      "size 5 with share -1",
		"5=NaN":         "size 5 with share NaN",
		"5=1e9":         "size 5 with share 1e+09",
		"5=0,6=0":       "the shares of all sizes are 0",
		"5=0":           "the shares of all sizes are 0",
		list + "8=1":    "1025 sizes",
	} {
		if s, err := ParseSizes(text, strconv.Atoi); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "MIN-MAX") {
			t.Errorf("%.40q: %v, %v; want %q", text, s, err, want)
		}
	}
	for _, s := range []Sizes{
		{Min: -1, Max: 5}, {Min: 10, Max: 20, List: []SizeShare{{9, 1}}}, {Min: 10, Max: 20, List: []SizeShare{{21, 1}}},
	} {
		cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Ops: 1, Sizes: &s}
		if cfg.Validate() == nil {
			t.Errorf("%v is accepted", &s)
		}
	}
	for _, s := range []Sizes{
		{Min: 0, Max: 0}, {Min: 10, Max: 20, List: []SizeShare{{10, 1}, {20, 0}}}, {Min: 1, Max: 2, Zipf: maxZipf}, {Min: 1, Max: 2, Zipf: 0.5},
	} {
		cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Ops: 1, Sizes: &s}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%v: %v", &s, err)
		}
	}
}

// The ends of the ranges of a workload's numbers are in them, and what is next to them is not.
func TestLimitsOfAWorkload(t *testing.T) {
	ok := RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Ops: 1}
	for _, c := range []struct {
		f    func(*RunConfig)
		good bool
	}{
		{func(*RunConfig) {}, true},
		{func(c *RunConfig) { c.Keys = 0 }, false},
		{func(c *RunConfig) { c.Zipf = 1.5 }, true},
		{func(c *RunConfig) { c.Zipf = 1.51 }, false},
		{func(c *RunConfig) { c.Zipf = -0.01 }, false},
		{func(c *RunConfig) { c.Clients = MaxClients }, true},
		{func(c *RunConfig) { c.Clients = MaxClients + 1 }, false},
		{func(c *RunConfig) { c.Clients = 0 }, false},
		{func(c *RunConfig) { c.Client = -1 }, false},
		{func(c *RunConfig) { c.Client = 1 }, false},
		{func(c *RunConfig) { c.Clients, c.Client = 2, 1 }, true},
		{func(c *RunConfig) { c.Ops = 0 }, false},
		{func(c *RunConfig) { c.Ops, c.Duration = 0, 1 }, true},
		{func(c *RunConfig) { c.Ops, c.Duration = 0, -1 }, false},
		{func(c *RunConfig) { c.Rate = minRate }, true},
		{func(c *RunConfig) { c.Rate = maxRate }, true},
		{func(c *RunConfig) { c.Rate = minRate / 2 }, false},
		{func(c *RunConfig) { c.Rate = -1 }, false},
		{func(c *RunConfig) { c.Pace = minPace }, true},
		{func(c *RunConfig) { c.Pace = maxPace }, true},
		{func(c *RunConfig) { c.Pace = minPace / 2 }, false},
		{func(c *RunConfig) { c.Pace = maxPace * 2 }, false},
		{func(c *RunConfig) { c.Warmup = -1 }, false},
		{func(c *RunConfig) { c.Duration = -1 }, false},
		{func(c *RunConfig) { c.Patience = -1 }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeUniform} }, true},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeUniform, MoveOps: 1} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeUniform, MoveTime: 1} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeLatest} }, true},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeLatest, MoveOps: 1} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeLatest, MoveTime: 1} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeHotspot, HotKeys: 1, HotOps: 1} }, true},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeHotspot, HotKeys: 0.5, HotOps: 0} }, true},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeHotspot, HotKeys: 0.5, HotOps: 0.5} }, true},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeHotspot, HotKeys: 1.5, HotOps: 0.5} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeHotspot, HotKeys: 0.5, HotOps: 1.5} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeHotspot, HotKeys: 0.5, HotOps: -0.5} }, false},
		{func(c *RunConfig) { c.Popularity = Popularity{Shape: ShapeZipf, MoveOps: 1, MoveTime: 1} }, true},
	} {
		cfg := ok
		c.f(&cfg)
		if err := cfg.Validate(); (err == nil) != c.good {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// The smallest and the largest numbers of the descriptions of a workload are accepted.
func TestParametersAtTheirEnds(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "0.5": 0.005, "100": 1, "100%": 1} {
		if w, err := FindWorkload(text); err != nil || w.Update != want || w.Read != 1-want || w.Name != text {
			t.Errorf("%s%% updates: %+v, %v", text, w, err)
		}
	}
	for text, want := range map[string]Workload{
		"get=100":            {Read: 1},
		"get=100,put=0":      {Read: 1},
		"scan=99.5,rmw=0.5%": {Scan: 0.995, ReadModify: 0.005},
	} {
		want.Name, want.Doc = text, "a mix of operations"
		if w, err := ParseMix(text); err != nil || w != want {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
	}
	var p Popularity
	if err := errors.Join(p.ParseMove("1"), p.ParseMove("1ns")); err != nil || p != (Popularity{MoveOps: 1, MoveTime: 1}) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := ParsePopularity("hotspot:0%:1"); err == nil || !strings.Contains(err.Error(), `with "0%" of the keys`) {
		t.Error(err)
	}
	if w, err := FindWorkload("D"); err != nil || !w.Latest || fmt.Sprint(KindReadModify) != "read-modify-write" {
		t.Errorf("%+v, %v", w, err)
	}
}

package perf

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestLoadValidate(t *testing.T) {
	good := Load{To: []string{"a"}, Size: 4096, Rate: 100, Begin: 1, End: 2, Last: 2}
	for want, change := range map[string]func(*Load){
		"":                  func(*Load) {},
		"0 hosts":           func(l *Load) { l.To = nil },
		"size 0":            func(l *Load) { l.Size = 0 },
		"rate 100, depth 1": func(l *Load) { l.Depth = 1 },
		"rate 0, depth 0":   func(l *Load) { l.Rate = 0 },
		"rate -1":           func(l *Load) { l.Rate = -1 },
		"rate NaN":          func(l *Load) { l.Rate = math.NaN() },
		"depth 257":         func(l *Load) { l.Rate, l.Depth = 0, MaxLoadFlying+1 },
		"end 1,":            func(l *Load) { l.End = 1 },
		"last 1:":           func(l *Load) { l.Last = 1 },
		"begin -1":          func(l *Load) { l.Begin = -1 },
		"within 10m":        func(l *Load) { l.Last = int64(time.Hour) },
	} {
		l := good
		change(&l)
		if err := l.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// READs begin at the rate of the load, and all hosts get some.
func TestArrivals(t *testing.T) {
	l := Load{To: make([]string, 5), Rate: 1000, Seed: 3}
	a := l.Arrivals()
	var sum time.Duration
	var peers [5]int
	for range 10_000 {
		sum += a.Gap()
		peers[a.Peer()]++
	}
	if mean := sum / 10_000; mean < 950*time.Microsecond || mean > 1050*time.Microsecond {
		t.Errorf("mean gap %v", mean)
	}
	for _, n := range peers {
		if n < 1800 || n > 2200 {
			t.Errorf("READs by host: %v", peers)
		}
	}
	if b := l.Arrivals(); b.Gap() != l.Arrivals().Gap() {
		t.Error("equal seeds draw different times")
	}
}

// A result does not grow without end.
func TestLoadResultIsFull(t *testing.T) {
	var r LoadResult
	for n := range maxLoadSamples {
		if r.Full() {
			t.Fatalf("full with %d READs", n)
		}
		r.Samples = append(r.Samples, LoadSample{})
	}
	if !r.Full() {
		t.Error("not full")
	}
}

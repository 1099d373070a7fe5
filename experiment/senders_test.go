package experiment

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"
)

// twoFlows is a run of two senders, of which the first has `share` of the bytes, behind a port of 8 Gb/s: a sample
// each half millisecond. The queue has 10, 20, 30, ... bytes in turn.
func twoFlows(share float64) *SenderRun {
	r := &SenderRun{CNPs: 20, Again: 10}
	for i := range 21 {
		n := uint64(i)
		each := []uint64{uint64(share * 400_000 * float64(i)), uint64((1 - share) * 400_000 * float64(i))}
		r.Samples = append(r.Samples, SenderSample{
			At: time.Duration(i) * time.Millisecond / 2, Each: each, Queue: int64(10 + 10*(i%10)), Bytes: 400_000 * n, Packets: 400 * n, Marked: 4 * n,
		})
	}
	return r
}

// The numbers of a run of which all is known: 8,000 packets of 1,000 bytes in 10 ms.
func TestSenderStats(t *testing.T) {
	s, err := twoFlows(0.75).Stats(8_000_000_000, 24)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what      string
		got, want float64
	}{
		{"windows", float64(s.Windows), 10},
		{"window", s.Window.Seconds(), 1e-3},
		{"Jain", s.Jain, 0.8},
		{"least", s.JainMin, 0.8},
		{"link", s.Link, 0.8 * 1.024},
		{"p50", s.P50, 50},
		{"p90", s.P90, 90},
		{"slowest", s.Rates[0], 1.6e9},
		{"fastest", s.Rates[1], 4.8e9},
		{"marked", s.Marked, 0.01},
		{"again", s.Again, 10. / 8000},
		{"CNPs", s.CNPs, 1000},
	} {
		if math.Abs(x.got-x.want) > 1e-6*x.want {
			t.Errorf("%s is %v, want %v", x.what, x.got, x.want)
		}
	}
	if math.Abs(s.Drift) > 1e-9 {
		t.Errorf("a steady run drifts by %v", s.Drift)
	}
	late := twoFlows(0.5) // a run that is 20 % slower in its second half
	for i := 11; i < len(late.Samples); i++ {
		late.Samples[i].Bytes -= uint64(i-10) * 80_000
	}
	if s, err := late.Stats(8_000_000_000, 24); err != nil || math.Abs(s.Drift+0.2) > 1e-9 {
		t.Errorf("drift %v, %v", s.Drift, err)
	}
	short := SenderRun{Samples: twoFlows(0.5).Samples[:2]}
	if _, err := short.Stats(1e9, 24); err == nil {
		t.Error("half a window has an index")
	}
	if _, err := (&SenderRun{}).Stats(1e9, 24); err == nil {
		t.Error("a run without samples has numbers")
	}
}

// twinPlatform is a rack whose senders have shown something.
type twinPlatform struct {
	Platform
	twin Twin
}

func (*twinPlatform) On() string { return OnRack }

func (p *twinPlatform) Congestion(context.Context, Congestion) (CongestionResult, error) {
	return CongestionResult{Twin: &p.twin}, nil
}

// A rack like the simulator meets line C10. Each number that is off makes its own line fail, and the experiment with it.
func TestLineC10(t *testing.T) {
	good := SenderStats{Windows: 100, Window: time.Millisecond, Jain: 0.99, JainMin: 0.9, Link: 0.99, P50: 20_000, P90: 60_000, Rates: []float64{19e9, 20e9}}
	for _, c := range []struct {
		off  func(s *SenderStats)
		text string
	}{
		{func(*SenderStats) {}, ""},
		{func(s *SenderStats) { s.Windows = 9 }, "9 windows of 1ms"},
		{func(s *SenderStats) { s.Window = 2 * time.Millisecond }, "100 windows of 2ms"},
		{func(s *SenderStats) { s.Drift = -0.11 }, "-11.0 %"},
		{func(s *SenderStats) { s.Rates = []float64{math.NaN(), 20e9} }, "more than +Inf %"},
		{func(s *SenderStats) { s.Jain = 0.94 }, "Jain's index is 0.940"},
		{func(s *SenderStats) { s.Link = 0.92 }, "0.920 of the link"},
		{func(s *SenderStats) { s.P50 = 41_000 }, "median is 2.05 times"},
		{func(s *SenderStats) { s.P50 = 9_000 }, "median is 0.45 times"},
		{func(s *SenderStats) { s.Rates = []float64{17e9, 20e9} }, "more than 10.5 %"},
	} {
		rack := good
		c.off(&rack)
		b, r := &dcqcnBody{}, &Report{}
		if err := b.Check(Place{On: OnRack, Hosts: 2}); err != nil {
			t.Fatal(err)
		}
		if err := b.Run(t.Context(), &twinPlatform{twin: Twin{Slow: 40, Span: time.Second, Rack: rack, Sim: good}}, r); err != nil {
			t.Fatal(err)
		}
		switch text := strings.Join(r.Failures, "\n"); {
		case c.text == "" && text != "":
			t.Errorf("a rack that is the simulator does not hold: %s", text)
		case c.text != "" && (len(r.Failures) != 1 || !strings.Contains(text, c.text)):
			t.Errorf("want one failure about %q, got %q", c.text, text)
		}
		if len(r.Rows) != len(twinRows) {
			t.Errorf("%d rows", len(r.Rows))
		}
	}
}

// A row whose history no order explains fails, also with --quick; so does one whose halves differ over all seeds.
func TestStoresAreJudged(t *testing.T) {
	r := &Report{}
	good := StoreResult{}
	good.Ops[0], good.Halves = 2000, [2]uint64{1000, 1000}
	bad := good
	bad.Checked, bad.Unexplained = 7, "the history of key 3 is not linearizable"
	good.judge(r, false, "good")
	bad.judge(r, true, "bad")
	if len(r.Failures) != 1 || !strings.Contains(r.Failures[0], "bad: of 7 operations: the history of key 3") {
		t.Errorf("failures %q", r.Failures)
	}
	uneven := good
	uneven.Halves = [2]uint64{1500, 500}
	restless := uneven
	restless.Restless = true
	if uneven.unsteady() == "" || restless.unsteady() != "" {
		t.Errorf("uneven %q, restless %q", uneven.unsteady(), restless.unsteady())
	}
	first, second := good, good
	first.Halves, second.Halves = [2]uint64{1000, 1500}, [2]uint64{1500, 1000}
	o := outcome{store: &first, seeds: []outcome{{store: &second}}}
	o.pool()
	if why := first.unsteady(); first.Halves != [2]uint64{2500, 2500} || second.unsteady() != "" || why != "" {
		t.Errorf("halves %v and %v: %q", first.Halves, second.Halves, why)
	}
}

package congestion

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// table returns the lines of a table in testdata that reference_rtt.py has printed.
func table(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// near reports whether two numbers differ by at most one part in a thousand.
func near(a, b float64) bool { return math.Abs(a-b) <= max(math.Abs(a), math.Abs(b))/1000 }

// The rates of TIMELY are those of an independent reference in floating point, whose program is
// testdata/reference_rtt.py, within a thousandth.
func TestTimelyReference(t *testing.T) {
	c := profile(t, ProfilePaper, 40_000_000_000).NewTimely()
	lines := table(t, "timely.txt")
	for i, line := range lines {
		var rtt int64
		var want float64
		if _, err := fmt.Sscan(line, &rtt, &want); err != nil {
			t.Fatal(err)
		}
		c.Acked(0, Ack{Packets: 1, Bytes: 1086, RTT: time.Duration(rtt)})
		if rate, window := c.Limit(); !near(float64(rate), want) || window != 0 {
			t.Fatalf("sample %d of %d ns: rate %d, window %d, want %.0f", i, rtt, rate, window, want)
		}
	}
	if len(lines) != 3000 {
		t.Errorf("%d lines", len(lines))
	}
}

// The windows and targets of Swift are those of the reference, and its limit is the window in whole
// packets, or a rate below one.
func TestSwiftReference(t *testing.T) {
	c := profile(t, ProfilePaper, 40_000_000_000).NewSwift()
	below := 0
	for i, line := range table(t, "swift.txt") {
		var now, rtt int64
		var kind string
		var n int
		var cwnd, target float64
		if _, err := fmt.Sscan(line, &now, &kind, &n, &rtt, &cwnd, &target); err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "ack":
			c.Acked(clock.Time(now), Ack{Packets: n, Bytes: n * 1000, RTT: time.Duration(rtt)})
		case "timeout":
			c.Lost(clock.Time(now), LossTimeout)
		default:
			c.Lost(clock.Time(now), LossNak)
		}
		got := float64(c.cwnd) / (1 << cwndBits)
		if !near(got, cwnd) || !near(float64(c.target()), target) {
			t.Fatalf("event %d (%s): window %.5f, target %v, want %.5f and %.0f ns", i, line, got, c.target(), cwnd, target)
		}
		rate, window := c.Limit()
		if cwnd < 0.999 {
			below++
			if want := got * 8000 / c.rtt.Seconds(); window != 1 || !near(float64(rate), want) {
				t.Fatalf("event %d: limit %d bit/s and %d packets, want %.0f and 1", i, rate, window, want)
			}
		} else if rate != 40_000_000_000 || window != max(int(got), 1) {
			t.Fatalf("event %d: limit %d bit/s and %d packets at window %.5f", i, rate, window, got)
		}
	}
	if below < 100 {
		t.Errorf("the window was below a packet in %d events", below)
	}
}

// Equations of the papers with numbers by hand. TIMELY, algorithm 1: a round trip of 1 ms, twice T_high,
// leaves 1 − 0.8·(1 − 500/1000) = 0.6 of the rate; a difference of 10 us, weight 7/8, against 20 us leaves
// 1 − 0.8·7/8·10/20 = 0.65. Swift, section 3.5: at the window 100 the target is the base, at 0.1 the base
// and the range, at 1 the base and 100·(1−0.1)/(3.162−0.1) us = 29.4 us; a delay of twice the target
// leaves 1 − 0.8/2 = 0.6 of the window, and one of ten times the target 0.5, as max_mdf says.
func TestEquationsOfThePapers(t *testing.T) {
	const line = 40_000_000_000
	share := func(c Controller, samples ...time.Duration) float64 {
		for _, rtt := range samples {
			c.Acked(0, Ack{Packets: 1, Bytes: 1086, RTT: rtt})
		}
		rate, _ := c.Limit()
		return float64(rate) / line
	}
	if s := share(profile(t, ProfilePaper, line).NewTimely(), time.Millisecond); !near(s, 0.6) {
		t.Errorf("TIMELY above T_high leaves %.4f", s)
	}
	if s := share(profile(t, ProfilePaper, line).NewTimely(), 100*time.Microsecond, 110*time.Microsecond); !near(s, 0.65) {
		t.Errorf("TIMELY with a gradient leaves %.4f", s)
	}
	p := profile(t, ProfilePaper, line)
	for cwnd, want := range map[float64]float64{100: 20, 128: 20, 1: 20 + 29.40, 0.1: 120, 0.01: 120} {
		c := p.NewSwift()
		c.cwnd = uint64(cwnd * (1 << cwndBits))
		if got := float64(c.target()) / 1000; math.Abs(got-want) > 0.2 {
			t.Errorf("Swift's target at %v packets is %.2f us, want %.2f", cwnd, got, want)
		}
	}
	for rtt, want := range map[time.Duration]float64{40 * time.Microsecond: 0.6, 200 * time.Microsecond: 0.5} {
		c := p.NewSwift()
		c.Acked(clock.Time(time.Second), Ack{Packets: 1, Bytes: 1086, RTT: rtt})
		c.Acked(clock.Time(time.Second+time.Microsecond), Ack{Packets: 1, Bytes: 1086, RTT: rtt}) // in the same round trip
		if got := float64(c.cwnd) / float64(packets(p.MaxCwnd)); !near(got, want) {
			t.Errorf("Swift's window after %v is %.4f of that before, want %v", rtt, got, want)
		}
	}
}

// No parameters within their bounds, and no round-trip time, make TIMELY or Swift divide by zero, or leave
// their limits; Limit is a rate from 1 bit/s to the line rate, and a window of at least a packet.
func TestExtremeParameters(t *testing.T) {
	g := generator(7)
	for range 3000 {
		p := *profile(t, ProfilePaper, 40_000_000_000)
		for _, f := range p.Fields() {
			switch g.draw(3) {
			case 0:
				_ = f.Set(f.Low)
			case 1:
				_ = f.Set(f.High)
			}
		}
		if p.Validate() != nil {
			p.MinRate, p.RTT, p.Interval = min(p.MinRate, p.MaxRate), 2*time.Microsecond, 0
			p.TLow, p.MinCwnd = min(p.TLow, p.THigh), min(p.MinCwnd, p.MaxCwnd)
			if p.FSMinCwnd >= p.FSMaxCwnd {
				p.FSMinCwnd, p.FSMaxCwnd = maxCwnd-1, maxCwnd
			}
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		now := clock.Time(0)
		for _, c := range []Controller{p.NewTimely(), p.NewSwift()} {
			for range 40 {
				now = now.Add(time.Duration(g.draw(1_000_000)))
				rtt := time.Duration(g.draw(4)) << g.draw(62)
				switch g.draw(8) {
				case 0:
					c.Lost(now, LossTimeout)
				case 1:
					c.Lost(now, LossNak)
				default:
					c.Acked(now, Ack{Packets: int(g.draw(1 << 14)), Bytes: int(g.draw(1 << 30)), RTT: rtt})
				}
				if rate, window := c.Limit(); rate < 1 || rate > p.MaxRate || window < 0 {
					t.Fatalf("%T: limit %d, %d with %+v", c, rate, window, p)
				}
				if s, ok := c.(Shower); !ok || math.IsNaN(s.State().Alpha) || s.State().Rate < 0 {
					t.Fatalf("%T: %+v", c, s.State())
				}
			}
		}
	}
}

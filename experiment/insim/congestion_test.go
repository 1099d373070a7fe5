package insim

import (
	"context"
	"flag"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

func twoSenders() experiment.Congestion {
	p, _ := congestion.Profile(congestion.ProfilePaper, 40_000_000_000)
	return experiment.Congestion{Senders: 2, Params: p, Delay: time.Microsecond, KMin: 5000, KMax: 200_000, PMax: 0.01, Span: 40 * time.Millisecond, Seed: 1}
}

// Two senders share the port, the link is used, and the queue is far from Kmax; counters of both ends
// agree, nothing is lost, and the same seed gives the same run.
func TestDCQCNInVirtualTime(t *testing.T) {
	out, err := (&Sim{}).Congestion(t.Context(), twoSenders())
	if err != nil {
		t.Fatal(err)
	}
	if out.Jain < 0.98 || out.Utilisation < 0.98 || out.P90 > 100_000 || out.P50 < 5000 || out.Again != 0 || out.Sent != out.Handled || out.Sent == 0 || out.Marked < out.Sent {
		t.Errorf("%+v", out)
	}
	again, err := (&Sim{}).Congestion(t.Context(), twoSenders())
	if err != nil || again != out {
		t.Errorf("the same seed gives %+v, then %+v, %v", out, again, err)
	}
	// Without a reaction to marks the queue grows without a bound.
	l := twoSenders()
	l.Params.Algorithm = congestion.AlgorithmNone
	if none, err := (&Sim{}).Congestion(t.Context(), l); err != nil || none.Peak < 5*out.Peak || none.Handled != 0 {
		t.Errorf("without control: %+v, %v", none, err)
	}
}

// Delay is a congestion control of one's own: it lowers the rate, at most once in a round trip, when a
// round trip takes longer than Target, and raises it by Step when one does not.
type Delay struct {
	Target time.Duration
	Step   int64
	line   int64
	rate   int64
	until  clock.Time // no cut before
}

func (d *Delay) Acked(now clock.Time, a congestion.Ack) {
	switch {
	case a.RTT == 0:
	case a.RTT > d.Target && now >= d.until:
		d.rate = max(d.rate*9/10, d.line/1000)
		d.until = now.Add(a.RTT)
	case a.RTT <= d.Target:
		d.rate = min(d.rate+d.Step, d.line)
	}
}

func (d *Delay) Limit() (bitsPerSecond int64, window int) { return d.rate, 0 }
func (*Delay) Sent(clock.Time, int)                       {}
func (*Delay) Notified(clock.Time)                        {} // marks are ignored
func (*Delay) Lost(clock.Time, congestion.Loss)           {}
func (*Delay) Tick(clock.Time)                            {}
func (*Delay) Deadline() clock.Time                       { return clock.Never }

// A congestion control of one's own is a type with the methods of congestion.Controller. Here two
// senders in the simulator react to the round-trip time, and not to marks.
func Example_controller() {
	load := twoSenders()
	load.Controller = func(p *congestion.Params) congestion.Controller {
		return &Delay{Target: 20 * time.Microsecond, Step: 100_000_000, line: p.MaxRate, rate: p.MaxRate}
	}
	out, err := (&Sim{}).Congestion(context.Background(), load)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("equal shares:", out.Jain > 0.9)
	fmt.Println("link used:", out.Utilisation > 0.9)
	fmt.Println("queue short:", out.P90 < 200_000)
	fmt.Println("nothing lost:", out.Again == 0)
	// Output:
	// equal shares: true
	// link used: true
	// queue short: true
	// nothing lost: true
}

// TIMELY and Swift, whose signal is the round-trip time: nothing is lost, and the queue is bounded by the
// delay to which each reacts. Swift uses the link from the start. TIMELY's first gradients lower its rate to
// the smallest, from which it rises by steps of 10 Mb/s. CNPs have no effect on them.
func TestRoundTripControllers(t *testing.T) {
	for _, c := range []struct {
		algorithm string
		span      time.Duration
		used      float64
		most      int // bytes of the queue at the 99th percentile
	}{{congestion.AlgorithmTimely, 200 * time.Millisecond, 0.4, 500_000}, {congestion.AlgorithmSwift, 20 * time.Millisecond, 0.99, 150_000}} {
		l := twoSenders()
		l.Params.Algorithm, l.Span = c.algorithm, c.span
		out, err := (&Sim{}).Congestion(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if out.Utilisation < c.used || out.P99 > c.most || out.Again != 0 || out.Jain < 0.95 {
			t.Errorf("%s: %+v", c.algorithm, out)
		}
	}
}

// U15 (Lumina, SIGCOMM 2023, finding 15): with one limit of CNPs for the whole port instead of one for each
// queue pair, each of 16 senders gets a sixteenth of the CNPs, and the queue is longer.
func TestLimitOfCNPsByPort(t *testing.T) {
	l := twoSenders()
	l.Senders, l.PMax = 16, 0.1
	each, err := (&Sim{}).Congestion(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	l.Params.Scope = congestion.ScopePort
	port, err := (&Sim{}).Congestion(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	most := float64(time.Second) / float64(l.Params.Interval) / 16
	t.Logf("U15: by queue pair %.0f CNPs a second and flow, Jain %.3f, queue p90 %d; by port %.0f (at most %.0f), Jain %.3f, queue p90 %d",
		each.CNPs, each.Jain, each.P90, port.CNPs, most, port.Jain, port.P90)
	if port.CNPs > most*1.01 || port.CNPs < most/2 || port.P90 < 2*each.P90 {
		t.Errorf("by queue pair %+v, by port %+v", each, port)
	}
}

// slowed returns a load whose rates are divided and whose times are multiplied by a factor.
func slowed(l experiment.Congestion, factor int) experiment.Congestion {
	l.Delay, l.Span, l.Apart = l.Delay*time.Duration(factor), l.Span*time.Duration(factor), l.Apart*time.Duration(factor)
	for _, f := range l.Params.Fields() {
		switch f.Kind {
		case congestion.Rate:
			*f.Int /= int64(factor)
		case congestion.Duration:
			*f.Time *= time.Duration(factor)
		case congestion.Number, congestion.Bytes:
		}
	}
	return l
}

var slowSeeds = flag.Int("slow-seeds", 12, "seeds of TestSlowMotion, at each speed")

// mean has the mean of a number over seeds, and the standard error of the mean.
type mean struct{ value, err float64 }

func meanOf(list []float64) (m mean) {
	n := float64(len(list))
	for _, v := range list {
		m.value += v / n
	}
	for _, v := range list {
		m.err += (v - m.value) * (v - m.value)
	}
	m.err = math.Sqrt(m.err / n / (n - 1))
	return m
}

// apart is how far two means are apart, and the standard error of that, as shares of the second.
func (m mean) apart(o mean) (differ, noise float64) {
	return math.Abs(m.value/o.value - 1), math.Hypot(m.err, o.err) / o.value
}

// C9: a run in slow motion, with all rates divided and all times multiplied by 40, is the same run. Without pacers each
// departure from the queue has the same length of the queue, in the same order: a byte takes whole nanoseconds at both speeds.
// Pacers round times to a nanosecond, which is more at full speed, and the smallest difference changes which packet
// is marked: from there on the two runs are as different as those of two seeds. Then the means over seeds are within
// 1 %, or within three standard errors of each other. How far other seeds at the same speed are apart says how much of
// the difference is that of seeds.
func TestSlowMotion(t *testing.T) {
	const slow = 40
	seeds := *slowSeeds
	load := func(seed int, span time.Duration) experiment.Congestion {
		l := twoSenders()
		l.Params, _ = congestion.Profile(congestion.ProfilePaper, 8_000_000_000) // a byte takes 1 ns
		l.Span, l.Seed = span, uint64(seed)
		return l
	}
	run := func(l experiment.Congestion) experiment.CongestionResult {
		r, err := (&Sim{}).Congestion(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	free := load(1, 4*time.Millisecond)
	free.Params.Algorithm = congestion.AlgorithmNone
	if a, b := run(free), run(slowed(free, slow)); a.Trace != b.Trace || a.Sent != b.Sent || a.Marked != b.Marked || a.Sent == 0 || a.P90 != b.P90 {
		t.Errorf("C9: without pacers %+v, slowed %+v", a, b)
	}
	numbers := []struct {
		name string
		of   func(r *experiment.CongestionResult) float64
	}{
		{"queue p50", func(r *experiment.CongestionResult) float64 { return float64(r.P50) }},
		{"queue p90", func(r *experiment.CongestionResult) float64 { return float64(r.P90) }},
		{"CNPs", func(r *experiment.CongestionResult) float64 { return float64(r.Sent) }},
		{"use of the link", func(r *experiment.CongestionResult) float64 { return r.Utilisation }},
	}
	const span = 100 * time.Millisecond
	full, slower, others := make([][]float64, len(numbers)), make([][]float64, len(numbers)), make([][]float64, len(numbers))
	for seed := 1; seed <= seeds; seed++ {
		a, b, c := run(load(seed, span)), run(slowed(load(seed, span), slow)), run(load(seeds+seed, span))
		for i, n := range numbers {
			full[i], slower[i], others[i] = append(full[i], n.of(&a)), append(slower[i], n.of(&b)), append(others[i], n.of(&c))
		}
	}
	for i, n := range numbers {
		a, b, c := meanOf(full[i]), meanOf(slower[i]), meanOf(others[i])
		differ, noise := b.apart(a)
		same, _ := c.apart(a)
		t.Logf("C9: %s %.6g, slowed %.6g: %.2f %% apart, standard error %.2f %%; other seeds at full speed %.6g: %.2f %% apart", n.name, a.value, b.value, 100*differ, 100*noise, c.value, 100*same)
		if differ > max(0.01, 3*noise) {
			t.Errorf("C9: %s differs by %.2f %%", n.name, 100*differ)
		}
	}
}

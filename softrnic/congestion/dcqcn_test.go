package congestion

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

const us = clock.Time(time.Microsecond)

func profile(t testing.TB, name string, rate int64) *Params {
	t.Helper()
	p, ok := Profile(name, rate)
	if !ok {
		t.Fatalf("no profile %s", name)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return &p
}

// The first CNP halves the rate, because alpha is 1, and so does a second one within the period of
// alpha. Then alpha decays by 1-g in each period without a CNP (DCQCN, SIGCOMM 2015, section 3).
func TestFirstCNPsHalve(t *testing.T) {
	p := profile(t, ProfilePaper, 40_000_000_000)
	d := p.NewDCQCN()
	if d.Deadline() != clock.Never {
		t.Fatalf("before the first CNP a timer runs: %v", d.Deadline())
	}
	d.Notified(1000 * us)
	if r, _ := d.Limit(); r != 20_000_000_000 {
		t.Errorf("after the first CNP the rate is %d", r)
	}
	d.Notified(1050 * us)
	if r, _ := d.Limit(); r != 10_000_000_000 {
		t.Errorf("after the second CNP the rate is %d", r)
	}
	if a := d.State().Alpha; a != 1 {
		t.Errorf("alpha is %v after CNPs in each period", a)
	}
	want := 1.0
	for i := range 100 {
		d.Tick(1050*us + clock.Time(i+1)*55*us)
		want *= 255.0 / 256
		if a := d.State().Alpha; math.Abs(a-want) > 1.0/(1<<40) {
			t.Fatalf("after %d periods alpha is %v, want %v", i+1, a, want)
		}
	}
}

// Alpha after n periods is exactly that of n multiplications in fixed point, however late Tick is.
func TestAlphaIsExact(t *testing.T) {
	p := profile(t, ProfilePaper, 40_000_000_000)
	d := p.NewDCQCN()
	d.Notified(0)
	d.Tick(1000 * 55 * us)
	want := uint64(1 << alphaBits)
	for range 1000 {
		want -= want * 4 / 1024
	}
	if d.alpha != want {
		t.Errorf("alpha is %#x, want %#x", d.alpha, want)
	}
}

// Five increases bring the rate back by halves, then the target grows by rp_ai_rate.
func TestStagesOfIncrease(t *testing.T) {
	p := profile(t, ProfilePaper, 40_000_000_000)
	d := p.NewDCQCN()
	d.Notified(0)
	d.Notified(10 * us) // rate 10 Gbit/s, target 20 Gbit/s
	rate, target := int64(10_000_000_000), int64(20_000_000_000)
	for i := range 8 {
		if i >= 4 {
			target += 40_000_000
		}
		rate = (rate + target) / 2
		d.Tick(10*us + clock.Time(i+1)*55*us)
		if s := d.State(); s.Target != target || s.Rate < rate || s.Rate > rate+1 {
			t.Fatalf("increase %d: rate %d, target %d; want %d, %d", i+1, s.Rate, s.Target, rate, target)
		}
	}
	// The byte counter brings hyper increase, once both stages exceed the threshold.
	before := d.State()
	for range 6 {
		d.Sent(0, int(p.ByteReset))
	}
	s := d.State()
	if want := before.Target + 5*40_000_000 + 2*200_000_000; s.ByteStage != 6 || s.Target != want {
		t.Errorf("after 6 byte stages: stage %d, target %d; want %d", s.ByteStage, s.Target, want)
	}
}

// generator is that of testdata/reference.py.
type generator uint64

func (g *generator) draw(n uint64) uint64 {
	*g = *g*6364136223846793005 + 1442695040888963407
	return uint64(*g>>33) % n
}

// The rates of 10,000 events are those of an independent reference in floating point, whose program
// is testdata/reference.py, to a bit a second.
func TestGoldenTrace(t *testing.T) {
	f, err := os.Open("testdata/dcqcn.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	g, now := generator(53), clock.Time(0)
	d := profile(t, ProfilePaper, 40_000_000_000).NewDCQCN()
	worst, rows := 0.0, 0
	for i := range 10_000 {
		rarity := []uint64{16, 256, 100_000, 8, 64}[i/1000%5]
		now += clock.Time(g.draw(40)) * us
		d.Tick(now)
		if g.draw(rarity) == 0 {
			d.Notified(now)
		} else {
			d.Sent(now, int(g.draw(65536)))
		}
		if i%10 != 9 {
			continue
		}
		if !lines.Scan() {
			t.Fatalf("the table ends before event %d", i)
		}
		var at clock.Time
		var rate, target, alpha float64
		if _, err := fmt.Sscan(lines.Text(), &at, &rate, &target, &alpha); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		gotRate, gotTarget := float64(d.rate)/(1<<rateBits), float64(d.target)/(1<<rateBits)
		worst = max(worst, math.Abs(gotRate-rate), math.Abs(gotTarget-target))
		if at*us != now || math.Abs(gotRate-rate) > 1 || math.Abs(gotTarget-target) > 1 || math.Abs(d.State().Alpha-alpha) > 2e-12 {
			t.Fatalf("event %d at %v: rate %.3f, target %.3f, alpha %.12f; the reference has %s", i, now, gotRate, gotTarget, d.State().Alpha, lines.Text())
		}
		rows++
	}
	if rows != 1000 || lines.Scan() {
		t.Errorf("%d rows compared; the table has another number", rows)
	}
	t.Logf("largest difference %.4f bit/s", worst)
}

// In profile mlx the rate is cut at most once a monitor period, alpha follows periods with and
// without a CNP, and the target is lowered only after an increase by the timer.
func TestProfileMLX(t *testing.T) {
	p := profile(t, ProfileMLX, 100_000_000_000)
	d := p.NewDCQCN()
	cuts := func() int64 { r, _ := d.Limit(); return r }
	d.Notified(0)
	first := cuts()
	d.Notified(1 * us)
	d.Notified(3 * us)
	if d.Tick(3999); cuts() != first {
		t.Errorf("the rate was cut again within the monitor period: %d", cuts())
	}
	if d.Tick(4000); cuts() >= first {
		t.Errorf("the CNPs of a monitor period do not cut the rate at its end: %d", cuts())
	}
	if s := d.State(); s.Target != 100_000_000_000 {
		t.Errorf("cuts without an increase have lowered the target to %d", s.Target)
	}
	d.Tick(310 * us)
	if s := d.State(); s.TimeStage != 1 || s.Rate <= cuts()/2 {
		t.Errorf("after the timer: %+v", s)
	}
	before := cuts()
	d.Notified(320 * us)
	if s := d.State(); s.Target != before {
		t.Errorf("a cut behind an increase leaves the target at %d, want %d", s.Target, before)
	}
	// An active flow without CNPs has an alpha that decays by 5/1024 a microsecond.
	d.Tick(322 * us)
	a := d.State().Alpha
	d.Tick(323 * us)
	if got, want := d.State().Alpha, a*1019/1024; math.Abs(got-want) > 1e-9 {
		t.Errorf("alpha is %v after a period without CNP, want %v", got, want)
	}
}

// script is a random series of events.
func script(r *rand.Rand, n int) (events []func(c Controller, eager bool)) {
	now := clock.Time(0)
	for range n {
		now += clock.Time(r.IntN(400)) * us / 4
		if r.IntN(200) == 0 {
			now += clock.Time(r.IntN(300_000)) * us
		}
		at, kind, size := now, r.IntN(8), r.IntN(1<<17)
		events = append(events, func(c Controller, eager bool) {
			if eager {
				for c.Deadline() <= at {
					c.Tick(c.Deadline())
				}
			}
			c.Tick(at)
			switch kind {
			case 0:
				c.Notified(at)
			case 1:
				c.Lost(at, LossNak)
			default:
				c.Sent(at, size)
			}
		})
	}
	return events
}

// For any events and both profiles: the rates stay within their bounds, alpha within 0 and 1, and a
// caller that ticks only when it sends gets the same state as one that ticks at every deadline.
func TestLateTicksGiveTheSame(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		name := Profiles()[seed%2]
		p := profile(t, name, 1_000_000_000<<r.IntN(7))
		if r.IntN(3) == 0 {
			p.ByteReset = 0
		}
		lazy, eager := p.NewDCQCN(), p.NewDCQCN()
		for i, ev := range script(r, 300) {
			ev(lazy, false)
			ev(eager, true)
			if *lazy != *eager {
				t.Fatalf("seed %d event %d: late ticks give %+v, ticks in time %+v", seed, i, *lazy, *eager)
			}
			s := lazy.State()
			rate, _ := lazy.Limit()
			if rate < min(p.MinRate, p.MaxRate) || rate > p.MaxRate || s.Target < s.Rate || s.Alpha < 0 || s.Alpha > 1 {
				t.Fatalf("seed %d event %d: %+v is out of bounds", seed, i, s)
			}
		}
	}
}

// After the last CNP the rate returns to the line rate, and then no timer runs.
func TestIdleTimersStop(t *testing.T) {
	for _, name := range Profiles() {
		p := profile(t, name, 40_000_000_000)
		d := p.NewDCQCN()
		for i := range 500 {
			d.Notified(clock.Time(i) * 50 * us)
		}
		if d.Deadline() == clock.Never {
			t.Fatalf("%s: no timer runs behind a CNP", name)
		}
		d.Tick(clock.Time(10 * time.Minute))
		if r, _ := d.Limit(); r != p.MaxRate || d.Deadline() != clock.Never {
			t.Errorf("%s: after ten minutes the rate is %d, and the next timer %v", name, r, d.Deadline())
		}
	}
}

func TestControllersDoNotAllocate(t *testing.T) {
	for _, name := range Profiles() {
		c := Config{Params: *profile(t, name, 40_000_000_000)}
		f := c.NewFlow()
		now := clock.Time(0)
		if n := testing.AllocsPerRun(1000, func() {
			now += us
			if f.Ready(now, 0) {
				f.Sent(now, 1086)
			}
			f.Measure(now)
			f.Acked(now, 1, 1086, true)
			f.Notified(now)
			f.Lost(now, LossTimeout)
		}); n != 0 {
			t.Errorf("%s: %v allocations an event", name, n)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(p *Params){
		"rp_dce_tcp_rtt 50µs must be above np_min_time_between_cnps 50µs": func(p *Params) { p.RTT = 50 * time.Microsecond },
		"rp_min_rate 41Gbit is above":                                     func(p *Params) { p.MinRate = 41_000_000_000 },
		"rp_gd: use a value from 10 to 15":                                func(p *Params) { p.GD = 9 },
		"rp_max_rate: use a value from 1Mbit":                             func(p *Params) { p.MaxRate = 0 },
		`"cubic" is unknown; use one of dcqcn`:                            func(p *Params) { p.Algorithm = "cubic" },
		`"flow" is unknown; use one of qp`:                                func(p *Params) { p.Scope = "flow" },
	} {
		p := *profile(t, ProfilePaper, 40_000_000_000)
		change(&p)
		if err := p.Validate(); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
	p := *profile(t, ProfileMLX, 40_000_000_000) // K 1 µs is below N 4 µs by design
	if f, err := p.Field("rp_ai_rate"); err != nil || f.Set(7) != nil || p.AIRate != 7 || f.String() != "7bit" {
		t.Errorf("set a parameter: %v", err)
	}
	if _, err := p.Field("rp_speed"); err == nil {
		t.Error("an unknown parameter was found")
	}
}

// A call of Tick after any time is bounded: with the smallest steps, a queue pair that was idle for long begins
// again at the line rate.
func TestTickIsBounded(t *testing.T) {
	p := profile(t, ProfilePaper, 40e9)
	p.AIRate, p.HAIRate, p.TimeReset = 1, 1, time.Microsecond
	d := p.NewDCQCN()
	d.Notified(0)
	d.Tick(clock.Time(100 * 365 * 24 * time.Hour)) // at a step each microsecond the test would not end
	if rate, _ := d.Limit(); d.active || rate != 0 && rate < p.MaxRate {
		t.Errorf("active %t, %d bits a second", d.active, rate)
	}
}

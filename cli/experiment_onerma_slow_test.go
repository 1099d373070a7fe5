package cli

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The rack file that the command names fits, also with the windows of figure 16; the defaults of the
// key onerma do not.
func TestSlowFit(t *testing.T) {
	data, err := os.ReadFile("../" + experiment.SlowRack)
	if err != nil {
		t.Fatal(err)
	}
	for _, window := range []string{"48KiB", "64KiB", "96KiB"} {
		r, err := rackfile.ParseFile(experiment.SlowRack, []byte(strings.Replace(string(data), "64KiB", window, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := slowFit(r.OneRMA); err != nil {
			t.Errorf("%s: %v", window, err)
		}
	}
	r, err := rackfile.Parse([]byte("onerma: {}\nhosts:\n  - {name: a, role: memory}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := slowFit(r.OneRMA); err == nil || !strings.Contains(err.Error(), experiment.SlowRack) {
		t.Error(err)
	}
}

// slow20 is a run in slow motion with a round trip of 20 ms.
func slow20(l *experiment.OneRMA) *slowRun { return &slowRun{OneRMA: l, rtt: 20 * time.Millisecond} }

// The links have the rate and the delay of the testbed 4,000 times slower.
func TestSlowRules(t *testing.T) {
	got := slow20(&experiment.OneRMA{Jitter: 1250 * time.Nanosecond}).rules("a")
	want := []fault.Rule{
		{ID: "slow-motion-rate-a", Link: "a", Kind: fault.Rate, BitsPerSecond: 25_000_000},
		{ID: "slow-motion-delay-a", Link: "a", Kind: fault.Delay, Delay: 6500 * time.Microsecond, Jitter: 2500 * time.Microsecond},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, r := range got {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}

const slowMs = int64(time.Millisecond)

func TestSlowSum(t *testing.T) {
	s := slowSum([]perf.LoadResult{
		{Samples: []perf.LoadSample{
			{At: 9 * slowMs, Took: time.Millisecond}, // before
			{At: 10 * slowMs, Took: 40 * time.Millisecond, Retries: 1}, {At: 29 * slowMs, Took: 20 * time.Millisecond}, {At: 31 * slowMs, Took: 80 * time.Millisecond},
		}},
		{Samples: []perf.LoadSample{
			{At: 12 * slowMs, Status: "DISPATCH_TIMEOUT"}, {At: 13 * slowMs, Status: "TIMEOUT"}, {At: 14 * slowMs, Status: perf.LoadShed}, {At: 50 * slowMs}, // after
		}},
	}, 10*slowMs, 30*slowMs, 50*slowMs)
	if s.all != 6 || s.moved != 2 || s.failed != 3 || s.dispatch != 2 || s.retried != 1 || len(s.took) != 3 || s.span != 20*time.Millisecond {
		t.Errorf("%+v", s)
	}
	out := experiment.OneRMAResult{Rack: new(experiment.OneRMARack)}
	if err := slow20(&experiment.OneRMA{}).fill(&s, &out); err != nil {
		t.Error(err)
	}
	near := func(a, b float64) bool { return a > 0.999*b && a < 1.001*b }
	// Two READs of 4096 bytes in 20 ms are 3.2768 Mbit/s; 7 operations began.
	if !near(out.Median, 2) || !near(out.P99, 4) || !near(out.Goodput, 3.2768/25) || !near(out.Retried, 4./7) || !near(out.Dispatch, 2./7) || !near(out.Rack.InTrip, 2) {
		t.Errorf("%+v, %+v", out, out.Rack)
	}
}

// A READ whose connection has ended says nothing about the load.
func TestSlowSumOfABrokenConnection(t *testing.T) {
	s := slowSum([]perf.LoadResult{{Samples: []perf.LoadSample{{At: 12 * slowMs, Status: verbs.RetryExcErr.String()}}}}, 10*slowMs, 30*slowMs, 50*slowMs)
	out := experiment.OneRMAResult{Rack: new(experiment.OneRMARack)}
	if err := slow20(&experiment.OneRMA{}).fill(&s, &out); err == nil || !strings.Contains(err.Error(), verbs.RetryExcErr.String()) {
		t.Error(err)
	}
}

// flowOf has READs that end at equal distances, with a rate for each interval of 40 ms.
func flowOf(began int64, perInterval ...int) (l perf.LoadResult) {
	l.Began = began
	for i, n := range perInterval {
		for k := range n {
			l.Samples = append(l.Samples, perf.LoadSample{At: began + int64(i)*40*slowMs + int64(k)*40*slowMs/int64(n)})
		}
	}
	return l
}

// The line rate is 29.9 READs in two round trips.
func TestSlowRamp(t *testing.T) {
	r := slow20(&experiment.OneRMA{})
	ramp := flowOf(7*slowMs, 5, 20, 26, 27, 30)
	for until, want := range map[int64]float64{1000: 8, 160: 0} {
		if got := r.lineAfter(&ramp, until*slowMs); got != want {
			t.Errorf("line rate until %d ms after %g RTT, want %g", until, got, want)
		}
	}
	// In steps of 100 ms from 80 ms on, the second flow has no READ, then less than 0.8, then 0.8 of the
	// READs of the first one.
	flows := []perf.LoadResult{flowOf(0, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25), flowOf(80*slowMs, 0, 0, 0, 15, 21, 21, 21, 21, 21)}
	if got := r.fairAfter(flows, 440*slowMs); got != 15 {
		t.Errorf("fair share after %g RTT, want 15", got)
	}
	if got := r.fairAfter(flows, 379*slowMs); got != 0 {
		t.Errorf("fair share after %g RTT before it is there", got)
	}
}

// Counting begins when all hosts have begun, if that is soon enough.
func TestSlowFrom(t *testing.T) {
	at := func(ms int64) time.Time { return time.Unix(0, ms*slowMs) }
	hosts := []perf.LoadResult{{Began: 3 * slowMs}, {Began: 20 * slowMs}}
	for from, want := range map[int64]int64{10: 20, 25: 25} {
		if got, err := slowFrom(hosts, at(from), at(30)); err != nil || got != want*slowMs {
			t.Errorf("from %d: %d, %v, want %d", from, got, err, want*slowMs)
		}
	}
	if _, err := slowFrom(hosts, at(10), at(19)); err == nil {
		t.Error("a host that was late is no error")
	}
}

// A host of a small rack reads from all others. In a large rack it reads from some, and as many read from
// it.
func TestSlowPeers(t *testing.T) {
	for n, want := range map[int]int{2: 1, 6: 5, 28: 27, 29: 13, 40: 10} {
		hosts := make([]string, n)
		for i := range hosts {
			hosts[i] = fmt.Sprint(i)
		}
		readers := make(map[string]int)
		for i := range hosts {
			to := slowPeers(hosts, i)
			if len(to) != want || slices.Contains(to, hosts[i]) {
				t.Fatalf("%d hosts: host %d reads from %v", n, i, to)
			}
			for _, h := range to {
				readers[h]++
			}
		}
		for h, k := range readers {
			if k != want {
				t.Errorf("%d hosts: %d read from host %s", n, k, h)
			}
		}
	}
}

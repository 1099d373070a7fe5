package insim

import (
	"context"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile/costs"
)

func rednResult(t *testing.T, l experiment.RedN) experiment.RedNResult {
	t.Helper()
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&Sim{Cost: m}).RedN(context.Background(), l)
	if err != nil {
		t.Fatalf("%+v: %v", l, err)
	}
	t.Logf("%s %s %d B: mean %v, median %v, p99 %v, %.0f/s, %.1f entries", l.Kind, l.Way, l.Bytes, res.Mean, res.Median, res.P99, res.Rate, res.Entries)
	return res
}

func TestRedNLookups(t *testing.T) {
	const serve, wake = 800 * time.Nanosecond, 5 * time.Microsecond
	for _, way := range []string{
		experiment.WayIdeal, experiment.WayNIC, experiment.WaySequential, experiment.WayParallel, experiment.WayRecycled, experiment.WayReads, experiment.WayPolling, experiment.WayEvents,
	} {
		for _, bytes := range []int{64, 4096, 65536} {
			rednResult(t, experiment.RedN{Kind: experiment.ChainLookup, Way: way, Bytes: bytes, Serve: serve, Wake: wake})
		}
	}
	if rate := rednResult(t, experiment.RedN{Kind: experiment.ChainLookup, Way: experiment.WayNIC, Bytes: 64, Depth: 8}).Rate; rate < 400e3 || rate > 600e3 {
		t.Errorf("%.0f lookups a second, Table 4 has 500,000", rate)
	}
	for _, clients := range []int{1, 8} {
		rednResult(t, experiment.RedN{Kind: experiment.ChainLookup, Way: experiment.WayNIC, Bytes: 64, Depth: 8, Clients: clients})
		rednResult(t, experiment.RedN{Kind: experiment.ChainLookup, Way: experiment.WayNIC, Bytes: 65536, Depth: 8, Clients: clients})
	}
}

func TestRedNLists(t *testing.T) {
	for _, way := range []string{experiment.WayNIC, experiment.WayBreak, experiment.WayRecycled, experiment.WayReads, experiment.WayPolling} {
		for _, n := range []int{1, 8} {
			rednResult(t, experiment.RedN{Kind: experiment.ChainList, Way: way, Bytes: 64, N: n, Serve: 800})
		}
	}
}

// The times of chains have the slopes of Figure 8, and constructs the rates of Table 3 within 20 %.
func TestRedNPace(t *testing.T) {
	for mode, each := range map[string]time.Duration{"WQ order": 170, "completion order": 190, "doorbell order": 540} {
		long := rednResult(t, experiment.RedN{Kind: experiment.ChainOrder, Way: mode, N: 50}).Mean
		short := rednResult(t, experiment.RedN{Kind: experiment.ChainOrder, Way: mode, N: 10}).Mean
		if got := (long - short) / 40; got < each*19/20 || got > each*21/20 {
			t.Errorf("%s: %v for a further no-op, want %v", mode, got, each)
		}
	}
	for construct, want := range map[string]float64{"if": 0.7e6, "while unrolled": 0.7e6, "while recycled": 0.3e6} {
		if got := rednResult(t, experiment.RedN{Kind: experiment.ChainConstruct, Way: construct}).Rate; got < want*0.8 || got > want*1.2 {
			t.Errorf("%s: %.0f a second, want %.0f", construct, got, want)
		}
	}
}

// GETs that the NIC answers do not wait for writers, and go on while the process is away.
func TestRedNTable(t *testing.T) {
	const each = 1970 * time.Nanosecond
	for _, way := range []string{experiment.WayNIC, experiment.WayReads, experiment.WayPolling} {
		for _, n := range []int{0, 16} {
			rednResult(t, experiment.RedN{Kind: experiment.ChainGets, Way: way, Bytes: 64, N: n, Trip: each, Serve: each})
		}
		steps := rednResult(t, experiment.RedN{Kind: experiment.ChainCrash, Way: way, Bytes: 64, Trip: each, Serve: each}).Steps
		t.Logf("%.0f", steps)
		for i, share := range steps {
			if share < 99 && way != experiment.WayPolling {
				t.Errorf("%s: %.0f %% of GETs are answered in step %d", way, share, i)
			}
		}
	}
}

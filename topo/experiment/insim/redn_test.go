package insim

import (
	"context"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/topo/costs"
	"github.com/rdmalab/rdmalab/topo/experiment"
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

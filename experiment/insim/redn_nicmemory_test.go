package insim

import (
	"context"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// In the memory of the NIC, a chain that enables each entry is faster by the fetches, and one that the
// NIC fetches ahead is as fast as in host memory. Lookups and walks find the same.
func TestProgramsInTheMemoryOfTheNIC(t *testing.T) {
	p := &Sim{Cost: model(t, "connectx5")}
	times := func(l experiment.RedN) (host, onNIC time.Duration) {
		a, err := p.RedN(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		l.OnNIC = true
		b, err := p.RedN(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		return a.Mean, b.Mean
	}
	const n, fetch = 50, 200 * time.Nanosecond
	for mode, fetches := range map[string]int{"WQ order": 0, "completion order": 0, "doorbell order": n - 1} {
		host, onNIC := times(experiment.RedN{Kind: experiment.ChainOrder, Way: mode, N: n})
		if got, want := host-onNIC, time.Duration(fetches)*fetch; got != want {
			t.Errorf("%s: the memory of the NIC saves %v, want %v", mode, got, want)
		}
	}
	for _, l := range []experiment.RedN{
		{Kind: experiment.ChainLookup, Way: experiment.WayRecycled, Bytes: 64},
		{Kind: experiment.ChainList, Way: experiment.WayRecycled, Bytes: 64, N: 8},
	} {
		if host, onNIC := times(l); onNIC >= host || onNIC < host/2 {
			t.Errorf("%s: %v in host memory, %v in that of the NIC", l.Kind, host, onNIC)
		}
	}
}

package insim

import (
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A GET and an update of pDPM-Central take two round trips, if there is one client. With many
// clients the coordinator's cores limit the throughput, whatever the number of memory servers.
func TestCentralRoundTrips(t *testing.T) {
	m := model(t, "connectx5")
	run := func(clients, cores, servers int, updates float64) experiment.StoreResult {
		r, err := (&Sim{Cost: m}).Direct(t.Context(), experiment.Direct{
			Clients: clients, Central: cores, Keys: 100, Value: 100, Servers: servers, Workload: kv.Workload{Name: "test", Read: 1 - updates, Update: updates},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Total() == 0 || r.Failed+r.Wrong+r.NotFound > 0 {
			t.Errorf("%d clients, %d cores: %d operations, %d failed (%s)", clients, cores, r.Total(), r.Failed, r.FirstError)
		}
		return r
	}
	for _, updates := range []float64{0, 1} {
		if r := run(1, 1, 2, updates); r.Summary().RTTsPerOp != 2 {
			t.Errorf("%g updates: %g round trips", updates, r.Summary().RTTsPerOp)
		}
	}
	first, second := run(32, 1, 2, 0), run(32, 2, 2, 0)
	one, two := first.Throughput(), second.Throughput()
	if most := 1 / m.Metadata.Call.Seconds(); one > 1.01*most || one < 0.9*most || two < 1.8*one {
		t.Errorf("%g operations a second with one core, %g with two; a core has time for %g", one, two, most)
	}
}

// A GET of pDPM-Direct takes one round trip and an update four, if there is one client. Nothing
// fails.
func TestDirectRoundTrips(t *testing.T) {
	for updates, trips := range map[float64]float64{0: 1, 1: 4} {
		r, err := (&Sim{Cost: model(t, "connectx5")}).Direct(t.Context(), experiment.Direct{
			Clients: 1, Keys: 100, Value: 100, Servers: 2, Workload: kv.Workload{Name: "test", Read: 1 - updates, Update: updates},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Summary().RTTsPerOp; r.Total() == 0 || r.Failed+r.Wrong+r.NotFound > 0 || got != trips {
			t.Errorf("%g updates: %d operations of %g round trips, %d failed (%s)", updates, r.Total(), got, r.Failed, r.FirstError)
		}
	}
}

package insim

import (
	"testing"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/experiment"
)

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

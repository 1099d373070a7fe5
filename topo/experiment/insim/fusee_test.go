package insim

import (
	"testing"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/experiment"
)

// Clients of FUSEE remember the slots of all keys, so a GET is one round trip, and so the throughput
// of reads is higher than that of updates. No operation fails or returns a wrong value.
func TestFuseeReadsAndUpdates(t *testing.T) {
	rate := make(map[float64]float64)
	for _, updates := range []float64{0, 0.5, 1} {
		r, err := (&Sim{Cost: model(t, "connectx5")}).Fusee(t.Context(), experiment.Fusee{
			Clients: 16, Keys: 200, Zipf: 0.99, Workload: kv.Workload{Name: "test", Read: 1 - updates, Update: updates},
		})
		if err != nil {
			t.Fatal(err)
		}
		trips := r.Summary().RTTsPerOp
		rate[updates] = r.Throughput()
		t.Logf("%g updates: %.3g ops/s, %.2f round trips, %.0f bytes", updates, r.Throughput(), trips, r.BytesPerOp)
		if r.Total() == 0 || r.Failed+r.Wrong+r.NotFound > 0 {
			t.Errorf("%g updates: %d operations, %d failed, %d were wrong (%s)", updates, r.Total(), r.Failed, r.Wrong, r.FirstError)
		}
		if updates == 0 && trips > 1.05 { // a few slots have a fingerprint of another key
			t.Errorf("a GET takes %.3f round trips", trips)
		}
	}
	if rate[0] < 1.5*rate[1] {
		t.Errorf("%v", rate)
	}
}

package insim

import (
	"testing"

	"github.com/rdmalab/rdmalab/experiment"
)

// A client that is alone reads a store with copies in one round trip, and writes it in as many as
// docs/papers/clover.md says. The load gets as many memory servers as copies.
func TestRoundTripsOfCopies(t *testing.T) {
	for copies, trips := range []float64{2, 2, 3, 4} {
		for writes, want := range map[float64]float64{0: 1, 100: trips} {
			r, err := (&Sim{Cost: model(t, "connectx5")}).Clover(t.Context(), experiment.Clover{
				Clients: 1, Writes: writes, Keys: 64, Zipf: 0.99, Start: experiment.CloverStart{Replicas: copies}, Warm: brief, Run: brief,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Summary().RTTsPerOp; r.Total() == 0 || r.Failed+r.Wrong+r.NotFound > 0 || got != want {
				t.Errorf("%d copies, %g%% writes: %d operations of %g round trips, want %g; %d failed (%s)", copies, writes, r.Total(), got, want, r.Failed, r.FirstError)
			}
		}
	}
}

// One thread of the metadata server is enough for clients that write at full rate: they exchange
// reports and nodes by the dozen.
func TestThreadsOfStart(t *testing.T) {
	run := func(threads int) float64 {
		r, err := (&Sim{Cost: model(t, "connectx5")}).Clover(t.Context(), experiment.Clover{
			Clients: 64, Writes: 100, Keys: 4096, Start: experiment.CloverStart{Threads: threads}, Warm: brief, Run: brief,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.Throughput()
	}
	if one, many := run(1), run(16); many > 1.02*one {
		t.Errorf("%g operations a second with one thread, %g with sixteen", one, many)
	}
}

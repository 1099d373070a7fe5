package storeload

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/topo/costs"
)

// Tests see what steering does before it has reached its full extent.
const (
	brief = 500 * time.Microsecond
	short = 2 * time.Millisecond
)

// Contended appends collapse: with many clients hardly a write wins its first race (SwordBox fig. 5).
func TestCollapse(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	few, err := Load{Clients: 1, Writes: 50, Zipf: 0.99, Seed: 1, Warm: brief, Run: short}.Measure(m)
	if err != nil {
		t.Fatal(err)
	}
	many, err := Load{Clients: 64, Writes: 50, Zipf: 0.99, Seed: 1, Warm: brief, Run: short}.Measure(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("1 client: %.3g ops/s, first try %.2f; 64 clients: %.3g ops/s, first try %.2f, %.0f bytes/op",
		few.Throughput(), few.FirstTryShare(), many.Throughput(), many.FirstTryShare(), many.BytesPerOp)
	if few.FirstTryShare() < 1 || many.FirstTryShare() > 0.7 || few.Failed+many.Failed+few.Wrong+many.Wrong > 0 {
		t.Errorf("first try %.2f and %.2f; %d and %d operations failed (%s)", few.FirstTryShare(), many.FirstTryShare(), few.Failed, many.Failed, many.FirstError)
	}
}

// With a switch that steers, writes win their first race again.
func TestSteeringRestores(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	share := make(map[string]float64)
	for _, steer := range []string{None, "both"} {
		r, err := Load{Clients: 64, Writes: 50, Zipf: 0.99, Seed: 1, Steer: steer, Warm: brief, Run: short}.Measure(m)
		if err != nil {
			t.Fatal(err)
		}
		share[steer] = r.FirstTryShare()
		t.Logf("%s: %.3g ops/s, first try %.3f, %.0f bytes/op, %.2f round trips; %v", steer, r.Throughput(), r.FirstTryShare(), r.BytesPerOp, r.Summary().RTTsPerOp, r.Steering)
		if r.Failed+r.Wrong > 0 {
			t.Errorf("%s: %d operations failed, %d were wrong (%s)", steer, r.Failed, r.Wrong, r.FirstError)
		}
	}
	if share["both"] < 0.95 || share[None] > 0.7 {
		t.Errorf("first try %.3f with steering, %.3f without", share["both"], share[None])
	}
}

// Clients that share queue pairs do the same work, and lose races as the others do.
func TestSharedQueuePairs(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	const share = 4
	for _, steer := range []string{None, "both"} {
		r, err := Load{Clients: 16, Writes: 50, Zipf: 0.99, Seed: 1, Share: share, Steer: steer, Warm: brief, Run: short}.Measure(m)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d share a queue pair, steer %s: %.3g ops/s, first try %.3f, %.0f bytes/op", share, steer, r.Throughput(), r.FirstTryShare(), r.BytesPerOp)
		if r.Failed+r.Wrong > 0 || r.Total() == 0 {
			t.Errorf("%d operations, %d failed, %d were wrong (%s)", r.Total(), r.Failed, r.Wrong, r.FirstError)
		}
	}
}

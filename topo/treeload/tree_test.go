package treeload

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/topo/costs"
)

// Wherever the locks are, nothing fails, and the tree as a whole yields about the same: one run says less of the place than of its seed.
func TestTreeYields(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	w, err := kv.FindWorkload("a")
	if err != nil {
		t.Fatal(err)
	}
	mops := make(map[string]float64)
	for seed := range uint64(3) {
		for _, place := range treePlaces {
			p, err := measureTree(m, TreeLoad{Clients: 64, Workload: w, Zipf: 1.2, Locks: place, HandOver: -1, Keys: 2000, Seed: seed + 1})
			if err != nil {
				t.Fatalf("locks in %s: %v", place, err)
			}
			t.Logf("%+v", p)
			mops[place] += p.Mops
			if p.Failed > 0 {
				t.Errorf("locks in %s: %d operations failed", place, p.Failed)
			}
		}
	}
	for _, place := range treePlaces {
		if gain := mops[place] / mops[LocksHost]; gain < 0.7 || gain > 1.4 {
			t.Errorf("locks in %s yield %.2f times what those in host memory do", place, gain)
		}
	}
}

package treeload

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/topo/costs"
)

// Contended updates gain from locks that the NIC keeps, and nothing fails wherever they are.
func TestTreeGains(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	w, err := kv.FindWorkload("a")
	if err != nil {
		t.Fatal(err)
	}
	mops := make(map[string]float64)
	for _, place := range treePlaces {
		p, err := measureTree(m, TreeLoad{Clients: 64, Workload: w, Zipf: 1.2, Locks: place, HandOver: -1, Keys: 2000, Seed: 1})
		if err != nil {
			t.Fatalf("locks in %s: %v", place, err)
		}
		t.Logf("%+v", p)
		mops[place] = p.Mops
		if p.Failed > 0 {
			t.Errorf("locks in %s: %d operations failed", place, p.Failed)
		}
	}
	if mops[LocksDevice] < mops[LocksHost] || mops[LocksSwitch] < mops[LocksHost] {
		t.Errorf("Mops by the place of locks: %v", mops)
	}
}

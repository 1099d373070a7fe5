package treeload

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/topo/costs"
)

// treeMops are the yields of three seeds with locks in each place; nothing may fail.
func treeMops(t *testing.T, l TreeLoad) map[treePlace]float64 {
	t.Helper()
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	if l.Workload, err = kv.FindWorkload("a"); err != nil {
		t.Fatal(err)
	}
	mops := make(map[treePlace]float64)
	for seed := range uint64(3) {
		for _, at := range treePlaces {
			l.Locks, l.Misses, l.Seed = at.locks, at.misses, seed+1
			p, err := measureTree(m, l)
			if err != nil {
				t.Fatalf("locks in %s: %v", at, err)
			}
			t.Logf("%+v", p)
			mops[at] += p.Mops
			if p.Failed > 0 {
				t.Errorf("locks in %s: %d operations failed", at, p.Failed)
			}
		}
	}
	return mops
}

// Wherever the locks are, the tree yields about the same to clients that queue for them on their machines: one run says less of the
// place than of its seed.
func TestTreeYields(t *testing.T) {
	mops := treeMops(t, TreeLoad{Clients: 64, Zipf: 1.2, Keys: 2000})
	for _, at := range treePlaces {
		if gain := mops[at] / mops[treePlace{LocksHost, ""}]; gain < 0.7 || gain > 1.4 {
			t.Errorf("locks in %s yield %.2f times what those in host memory do", at, gain)
		}
	}
}

// Clients that share nothing are let down by locks in host memory, and queue as well in the switch as on machines of their own.
func TestTreeOfClientsAlone(t *testing.T) {
	mops := treeMops(t, TreeLoad{Clients: 64, Zipf: 1.2, Keys: 2000, Alone: true})
	host, queued := mops[treePlace{LocksHost, ""}], mops[treePlace{LocksSwitch, "wait"}]
	if queued < 2*host || queued < mops[treePlace{LocksDevice, ""}] {
		t.Errorf("%v; want twice as much with locks in the switch as in host memory", mops)
	}
}

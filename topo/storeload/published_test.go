package storeload

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/topo/costs"
)

// A small experiment in all three ways: no operation fails in mode hard, and appends win their first race.
func TestFillSmall(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	r := Row{Name: "small", Paper: "nothing", Load: Load{Clients: 32, Writes: 50, Zipf: 1.2, Keys: 64, Seed: 1, Steer: "both", Warm: brief, Run: brief}}
	if err := r.Fill(m); err != nil {
		t.Fatal(err)
	}
	if r.Plain.Failed+r.Hard.Failed > 0 || r.Hard.FirstTry < 0.95 || r.Plain.FirstTry > 0.8 || r.Published.Mops == 0 {
		t.Errorf("%+v", r)
	}
	var b strings.Builder
	if err := WriteRows(&b, []Row{r}); err != nil || strings.Count(b.String(), "\n") != 4 || !strings.Contains(b.String(), "nothing") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Four nodes for each key, and eight hot keys: what is used again is steered as well.
func TestHotKeysOfASmallPool(t *testing.T) {
	m, err := costs.Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	share := make(map[int]float64)
	for _, hot := range []int{0, 8} {
		r, err := Load{Clients: 32, Writes: 50, Zipf: 1.2, Keys: 64, Pool: 4*64 + 32*17, Seed: 1, Steer: "both", Hot: hot, Warm: brief, Run: short}.Measure(m)
		if err != nil {
			t.Fatal(err)
		}
		share[hot] = r.FirstTryShare()
		if r.Failed+r.Wrong > 0 {
			t.Errorf("hot %d: %d operations failed, %d were wrong (%s)", hot, r.Failed, r.Wrong, r.FirstError)
		}
	}
	if share[0] < 0.8 || share[8] >= share[0] {
		t.Errorf("first try %v", share)
	}
}

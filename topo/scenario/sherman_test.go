package scenario

import (
	"flag"
	"slices"
	"testing"
)

var (
	treeSeeds = flag.Int("sherman.seeds", 20, "how many seeds of tree histories to run")
	treeFirst = flag.Uint64("sherman.first", 1, "the first of them")
)

func treeScenario(t *testing.T, name string) Scenario {
	t.Helper()
	list := treeScenarios()
	i := slices.IndexFunc(list, func(s Scenario) bool { return s.Name == name })
	return list[i]
}

// Histories of the tree on racks whose links and machines fail.
func TestSherman(t *testing.T) {
	t.Parallel()
	runTreeSeeds(t, "sherman")
}

// The same with locks in the switch.
func TestShermanLocks(t *testing.T) {
	t.Parallel()
	runTreeSeeds(t, "sherman-locks")
}

func runTreeSeeds(t *testing.T, name string) {
	s := treeScenario(t, name)
	for i := range uint64(*treeSeeds) {
		seed := *treeFirst + i
		r := s.Run(seed, Options{})
		if testing.Verbose() {
			t.Logf("seed %d: %s\n%v\n%.500v", seed, r.Plan, r.Notes, r.Err)
		}
		if r.Err != nil {
			t.Errorf("seed %d: %s\n%.3000v\nreplay: rdmalab sim %s --seed %d -v", seed, r.Plan, r.Err, name, seed)
		}
	}
}

// The published layout gives wrong answers under torn copies; the same seeds with the sound one do not.
func TestPublishedLayoutFails(t *testing.T) {
	t.Parallel()
	failed := 0
	for seed := uint64(1); seed <= 20; seed++ {
		if r := treeScenario(t, "sherman-faithful").Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		} else if r.Damage != "" {
			if failed++; failed < 4 {
				t.Logf("seed %d: %s", seed, r.Damage)
			}
		}
	}
	t.Logf("%d of 20 seeds with damage", failed)
	if failed < 5 {
		t.Errorf("%d of 20 seeds with damage, want at least 5", failed)
	}
}

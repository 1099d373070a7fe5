package scenario

import "testing"

// The holes of published clients show in histories and tables. Hardened clients do no damage with the
// same seeds (TestEveryScenarioHolds).
func TestPublishedTableFails(t *testing.T) {
	t.Parallel()
	s, err := mustFind(t, "fusee").Vary(Params{Mode: modePublished})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for seed := uint64(1); seed <= 10; seed++ {
		if r := s.Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		} else if r.Damage != "" {
			failed++
			t.Logf("seed %d: %s", seed, r.Damage)
		}
	}
	if failed < 2 {
		t.Errorf("%d of 10 seeds with damage, want at least 2", failed)
	}
}

package scenario

import (
	"fmt"
	"testing"
)

// These seeds once failed, and their runs were right: a check did not allow what had happened.
func TestSeedsThatFailedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		seeds []uint64
	}{
		{"transport", []uint64{8320002560}},           // a client repeats the tail of a READ until its retries are used up
		{"buffer", []uint64{8320000228, 8320000721}},  // the switch is down while the senders send
		{"hostile", []uint64{8320000035, 8320000361}}, // the attacker floods queue pairs of its own connections, too
	} {
		for _, seed := range c.seeds {
			t.Run(fmt.Sprint(c.name, " ", seed), func(t *testing.T) {
				t.Parallel()
				if r := mustFind(t, c.name).Run(seed, Options{}); r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
	}
}

// These seeds once failed because of the store Clover: writers went back to an old shortcut again and
// again, reported nodes of lost and of deleted keys stayed held, and a client waited until its deadline for the
// answer to a report over a connection that the metadata server had ended.
func TestSeedsThatFoundFaultsOfClover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(e *env) error
		seed uint64
	}{
		{"--steer both --mix wear", func(e *env) error { return new(storePlan).runSteered(e, "both", "wear", nil) }, 8330000005},
		{"--mix wear", func(e *env) error { return new(storePlan).runMixed(e, "wear", nil) }, 8340000014},
		{"", func(e *env) error { return new(storePlan).runMixed(e, "", nil) }, 8340000407},
		{"--share-qp", func(e *env) error { return new(storePlan).runShared(e, "") }, 8340000719},
		{"--steer both", func(e *env) error { return new(storePlan).runSteered(e, "both", "", nil) }, 910000280},
		{"--steer both", func(e *env) error { return new(storePlan).runSteered(e, "both", "", nil) }, 910000733},
		{"--steer both", func(e *env) error { return new(storePlan).runSteered(e, "both", "", nil) }, 910002111},
		{"--steer both", func(e *env) error { return new(storePlan).runSteered(e, "both", "", nil) }, 910005286},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.seed), func(t *testing.T) {
			t.Parallel()
			s := Scenario{Name: "clover", run: c.run}
			if r := s.Run(c.seed, Options{}); r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
}

package scenario

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// seedsPerTest is the number of seeds of each variant that a test runs; allSeeds is that of make
// sweep, which runs these tests with all their seeds (verbstest.Tries). ofScenario is that of the
// scenarios themselves, of which `make test` runs many more seeds beside (FEW in the Makefile), from
// the same first one on; `make coverage`, which does not run those, has a larger one. fewSeeds are
// the scenarios whose seeds take long.
const allSeeds = 16

var (
	seedsPerTest = verbstest.Tries(allSeeds, 4)
	ofScenario   = verbstest.Tries(4, 1)
	fewSeeds     = map[string]int{"soak": len(soakFaults), "planned": 1, "holes": 1}
)

func mustFind(t *testing.T, name string) Scenario {
	t.Helper()
	s, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustVary(t *testing.T, s Scenario, p Params) Scenario {
	t.Helper()
	s, err := s.Vary(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryScenarioHolds(t *testing.T) {
	scenarios := len(All())
	for i, s := range Variants() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			n, few := fewSeeds[s.Name]
			switch {
			case few:
			case i < scenarios:
				n = ofScenario
			default:
				n = seedsPerTest
			}
			for seed := uint64(1); seed <= uint64(n); seed++ {
				r := s.Run(seed, Options{Short: true})
				if r.Err != nil {
					t.Errorf("seed %d (%s): %v\n%s", seed, r.Plan, r.Err, strings.Join(r.Notes, "\n"))
				}
				if r.Events == 0 {
					t.Errorf("seed %d: nothing happened", seed)
				}
			}
		})
	}
}

// The same seed gives the same events, packet for packet; another seed gives others.
func TestSeedsReplay(t *testing.T) {
	for _, s := range Variants() {
		switch s.Name {
		case "soak":
			continue // transport shows the same, with more kinds of operations
		case "planned":
			s = mustVary(t, s, Params{Schedules: 100})
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var last uint64
			for seed := range uint64(verbstest.Tries(3, 2)) {
				seed++
				a, b := s.Run(seed, Options{Hash: true}), s.Run(seed, Options{Hash: true})
				if a.Hash != b.Hash || a.Hash == 0 || a.Events != b.Events {
					t.Errorf("seed %d: digests %x and %x of %d and %d events", seed, a.Hash, b.Hash, a.Events, b.Events)
				}
				if a.Hash == last {
					t.Errorf("seeds %d and %d have one digest", seed-1, seed)
				}
				last = a.Hash
			}
		})
	}
}

// The capture of a run has every packet. The corrupted ones alone have a wrong ICRC, and frames
// that a fault has changed have a comment.
func TestCapture(t *testing.T) {
	s := mustFind(t, "transport")
	for seed := uint64(1); seed <= 6; seed++ {
		var file bytes.Buffer
		r := s.Run(seed, Options{Pcap: &file})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		var text bytes.Buffer
		d, err := dump.New(&text, dump.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Dump("sim", &file); err != nil {
			t.Fatal(err)
		}
		if bad := uint64(d.Stats.Bad()); bad > 0 && r.Links.Corrupted == 0 {
			t.Errorf("seed %d: %d bad packets where nothing was corrupted", seed, bad)
		}
		if r.Links.LostFault > 0 && !strings.Contains(text.String(), "lost-fault") {
			t.Errorf("seed %d: %d frames lost and no comment says so", seed, r.Links.LostFault)
		}
	}
}

func TestSweepIsInOrder(t *testing.T) {
	next := uint64(5)
	sum := mustFind(t, "rnr").Sweep(5, 20, func() bool { return false }, func(r *Report) {
		if r.Seed != next {
			t.Errorf("report of seed %d, want %d", r.Seed, next)
		}
		next++
	})
	if sum.Seeds != 20 || len(sum.Failures) != 0 || sum.Events == 0 {
		t.Errorf("summary %+v", sum)
	}
}

func TestFindNamesThemAll(t *testing.T) {
	_, err := Find("nonsense")
	if err == nil || !strings.Contains(err.Error(), "transport") {
		t.Errorf("error %v does not say what there is", err)
	}
}

func TestPSNNearWrapWraps(t *testing.T) {
	d := newDraw(1)
	for range 100 {
		if p := psnNearWrap(d.Rand); p == 0 || p.Add(400) > 400 || p > wire.PSN(1<<24-1) {
			t.Fatalf("first PSN %#x does not wrap within 400", p)
		}
	}
}

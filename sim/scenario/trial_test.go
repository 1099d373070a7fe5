package scenario

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	_ "github.com/rdmalab/rdmalab/store/pdpm"     // and the one with a server
	_ "github.com/rdmalab/rdmalab/store/template" // the store of these tests
)

// Seeds that once found a defect of the template find none any more.
func TestTemplateKeptSeeds(t *testing.T) {
	t.Parallel()
	for seed, why := range map[uint64]string{
		103378: "two clients deleted a key with the same word, and both took the CAS that was repeated for theirs",
		200858: "slots were compared with bytes that the connection had read again: a key got a second slot",
		201929: "the same, with three servers",
	} {
		if r := mustFind(t, "template").Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d (%s): %.3000v", seed, why, r.Err)
		}
	}
}

// The run that every store gets finds each of these bugs, with any store.
func TestPlantedTrialBugsAreCaught(t *testing.T) {
	t.Parallel()
	s, err := store.Find("template")
	if err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(kv.Store) kv.Store{
		"no answer":                      func(s kv.Store) kv.Store { return silent{s} },
		"stale reads":                    func(s kv.Store) kv.Store { return &buggyTable{Store: s, stale: map[uint64][]byte{}} },
		"writes that never happen":       func(s kv.Store) kv.Store { return &buggyTable{Store: s, forget: true} },
		"writes that happen and deny it": func(s kv.Store) kv.Store { return &buggyTable{Store: s, deny: true} },
		"INSERTs that lose and report success": func(s kv.Store) kv.Store {
			return &buggyTable{Store: s, skip: func(*buggyTable, uint64) error { return nil }}
		},
	} {
		caught := false
		for seed := uint64(1); seed <= 40 && !caught; seed++ {
			s := Scenario{Name: "template", run: func(e *env) error { return new(trialPlan).run(e, s.Scenarios[0].Trial, plant) }}
			caught = s.Run(seed, Options{}).Err != nil
		}
		if !caught {
			t.Errorf("%s: not caught with 40 seeds", name)
		}
	}
}

// An operation that repeats its requests for ever ends the run with an error that names it, soon
// after its deadline.
func TestEndlessOperation(t *testing.T) {
	t.Parallel()
	desc, err := store.Find("template")
	if err != nil {
		t.Fatal(err)
	}
	s := Scenario{Name: "template", run: func(e *env) error {
		return new(trialPlan).run(e, desc.Scenarios[0].Trial, func(s kv.Store) kv.Store { return endless{s} })
	}}
	r := s.Run(1, Options{events: 20_000_000})
	if r.Err == nil || !strings.Contains(r.Err.Error(), "has not ended") {
		t.Errorf("%d events, %v of virtual time: %.300v", r.Events, r.Virtual, r.Err)
	}
}

// endless is a client whose GETs do not end.
type endless struct{ kv.Store }

func (e endless) Get(key uint64, dst []byte, _ clock.Time) ([]byte, error) {
	for {
		if _, err := e.Store.Get(key, dst, clock.Never); errors.Is(err, verbs.ErrClosed) {
			return nil, err
		}
	}
}

// silent is a client that never gets an answer.
type silent struct{ kv.Store }

func (silent) Get(uint64, []byte, clock.Time) ([]byte, error) { return nil, kv.ErrTimeout }
func (silent) Put(uint64, []byte, clock.Time) error           { return kv.ErrTimeout }
func (silent) Insert(uint64, []byte, clock.Time) error        { return kv.ErrTimeout }
func (silent) Delete(uint64, clock.Time) error                { return kv.ErrTimeout }

// The plans contain every fault of a host.
func TestTrialsHaveFaults(t *testing.T) {
	t.Parallel()
	s, err := store.Find("template")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for seed := uint64(1); seed <= 200; seed++ {
		for _, x := range new(trialPlan).draw(newEnv(Scenario{}, seed, Options{}), s.Scenarios[0].Trial).faults {
			seen[x.what]++
			if x.victim == survivor {
				t.Errorf("seed %d: %s fails", seed, survivor)
			}
		}
	}
	for _, what := range []string{trialClientsDie, trialNICHang, trialHostHang, trialLinkCut, trialNICCrash, trialMemoryLost} {
		if seen[what] < 5 {
			t.Errorf("%s: %d times in 200 plans", what, seen[what])
		}
	}
}

// The plans of a store with a server contain every fault of its host, and no host takes the place of
// itself while it may be down.
func TestTrialsHaveServerFaults(t *testing.T) {
	t.Parallel()
	s, err := store.Find("pdpm-central")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for seed := uint64(1); seed <= 200; seed++ {
		for _, x := range new(trialPlan).draw(newEnv(Scenario{}, seed, Options{}), s.Scenarios[0].Trial).serverFaults {
			seen[x.what]++
			if x.next == x.victim && x.what != trialServerStops && x.what != trialServerAgain {
				t.Errorf("seed %d:%v", seed, x)
			}
		}
	}
	for _, what := range []string{trialServerStops, trialServerAgain, trialNICHang, trialHostHang, trialLinkCut} {
		if seen[what] < 5 {
			t.Errorf("%s: %d times in 200 plans", what, seen[what])
		}
	}
}

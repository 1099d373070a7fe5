package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// falseLoss is a store that reports every third key as lost, once memory was lost.
type falseLoss struct {
	kv.Store
	run *storeRun
	n   int
}

func (f *falseLoss) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	v, err := f.Store.Get(key, dst, deadline)
	if err != nil || !f.run.injected {
		return v, err
	}
	if f.n++; f.n%3 == 0 {
		return dst[:0], kv.ErrLost
	}
	return v, nil
}

// After a loss of memory, a store that reports a key as lost which had nothing in that memory is
// found.
func TestFalseLossesAreCaught(t *testing.T) {
	t.Parallel()
	for _, lies := range []bool{false, true} {
		caught := 0
		const seeds, least = 12, 6
		for seed := uint64(1); seed <= seeds; seed++ {
			s := Scenario{Name: "clover", run: func(e *env) error {
				p := new(storePlan).draw(e)
				p.rules, p.links, p.then, p.loses, p.keys, p.mix = nil, "none", nil, 0, 8, [4]float64{0.6, 0.8, 0.95, 1}
				p.storeFaultAt = storeFaultAt{what: storeMemoryCrash, victim: "ms1", after: p.clients * p.rounds / 3, down: 5 * time.Millisecond}
				r := &storeRun{env: e, plan: p}
				if lies {
					r.plant = func(s kv.Store) kv.Store { return &falseLoss{Store: s, run: r} }
				}
				return r.run()
			}}
			r := s.Run(seed, Options{})
			if r.Err == nil {
				continue
			}
			if caught++; !lies || !strings.Contains(r.Err.Error(), "not linearizable") {
				t.Errorf("lies %v: seed %d: %.500v", lies, seed, r.Err)
			}
		}
		if lies && caught < least {
			t.Errorf("caught with %d of %d seeds", caught, seeds)
		}
		t.Logf("lies %v: %d of %d seeds", lies, caught, seeds)
	}
}

package scenario

import (
	"testing"
	"time"
)

// A client that waits too long for the others ends and gives back its nodes. Nothing is compared
// then, so a correct run does not fail.
func TestARunWhoseClientsDoNotWaitIsNotCompared(t *testing.T) {
	t.Parallel()
	s := Scenario{Name: "clover", run: func(e *env) error {
		p := new(storePlan).draw(e)
		p.storeFaultAt, p.then, p.loses = storeFaultAt{}, nil, 0
		p.blend(e, "crowd")
		return (&storeRun{env: e, plan: p, most: time.Nanosecond}).run()
	}}
	for seed := uint64(1); seed <= 20; seed++ {
		if r := s.Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
	}
}

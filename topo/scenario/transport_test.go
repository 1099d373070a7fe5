package scenario

import (
	"testing"
)

func TestTransportSeeds(t *testing.T) {
	s, err := Find("transport")
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(1); seed <= 300; seed++ {
		r := s.Run(seed, Options{})
		if r.Err != nil {
			t.Errorf("seed %d (%s): %v", seed, r.Plan, r.Err)
		}
	}
}

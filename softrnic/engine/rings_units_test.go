package engine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// A new ring belongs to the processing unit with the fewest rings, so that those that are left of many do not share one.
func TestRingsShareUnitsEvenly(t *testing.T) {
	r := newRinged(t)
	r.e.cfg.RingCosts.Units = 2
	var all []*QP
	for range 4 {
		all = append(all, r.add(0, sendring.Config{}))
	}
	for _, k := range []int{1, 3} { // both rings of the second unit
		if err := all[k].Destroy(); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := r.add(0, sendring.Config{}), r.add(0, sendring.Config{}); a.ring.unit != 1 || b.ring.unit != 1 {
		t.Errorf("rings at units %d and %d; the second one is free", a.ring.unit, b.ring.unit)
	}
}

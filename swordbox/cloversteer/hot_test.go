package cloversteer

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// The sketch finds the most requested keys among many, follows changes, and allocates no memory.
func TestHotKeys(t *testing.T) {
	var h hot
	h.begin(1 << 14)
	r := rand.New(rand.NewPCG(1, 2))
	now := clock.Time(0)
	ask := func(first uint64) {
		now = now.Add(time.Microsecond)
		key := uint64(r.IntN(100000)) + 1000
		if r.IntN(2) == 0 {
			key = first + uint64(r.IntN(8))
		}
		h.count(now, id{key, 1}, false)
	}
	for _, first := range []uint64{0, 500} {
		for range 1 << 17 {
			ask(first)
		}
		for k := first; k < first+8; k++ {
			if !h.steers(&rules.Rule{Hot: 8}, 0, h.find(id{k, 1})) {
				t.Errorf("key %d is not among the 8 hottest: %+v", k, h.find(id{k, 1}))
			}
		}
		n := 0
		for i := range h.warm {
			if h.steers(&rules.Rule{Hot: 8}, 0, &h.warm[i]) {
				n++
			}
		}
		if n != 8 {
			t.Errorf("%d keys are the 8 hottest", n)
		}
	}
	if n := testing.AllocsPerRun(1<<15, func() { ask(500) }); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
	now = now.Add(2 * time.Second)
	h.measure(now)
	if w := h.find(id{500, 1}); w.rate == 0 {
		t.Errorf("no rate: %+v", w)
	}
}

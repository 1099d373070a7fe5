package clock

import (
	"math/rand/v2"
	"testing"
)

// Under random sets and removals, the heap returns the same minimum as a search in a map; ids below
// and above the bound of the array are mixed.
func TestQueueAgreesWithModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q Queue
		model := map[uint32]Time{}
		for range 500 {
			id := uint32(r.IntN(20))
			if seed%3 > 0 && id >= 10 {
				id += nearIDs - 10*uint32(seed%3)
			}
			if r.IntN(4) == 0 {
				q.Remove(id)
				delete(model, id)
			} else {
				at := Time(r.IntN(30))
				q.Set(id, at)
				model[id] = at
			}
			wantID, wantAt := uint32(0), Never
			for id, at := range model {
				if at < wantAt || (at == wantAt && id < wantID) {
					wantID, wantAt = id, at
				}
			}
			if id, at := q.Next(); id != wantID || at != wantAt || q.Len() != len(model) {
				t.Fatalf("seed %d: Next() = %d,%v len %d; want %d,%v len %d", seed, id, at, q.Len(), wantID, wantAt, len(model))
			}
		}
	}
}

func TestTimeSaturates(t *testing.T) {
	if got := Never.Add(-1); got != Never {
		t.Errorf("Never.Add(-1) = %v", got)
	}
	if got := (Never - 1).Add(10); got != Never {
		t.Errorf("overflow = %v, want never", got)
	}
	if got := Time(5).Add(-10); got != -5 {
		t.Errorf("5-10 = %d", got)
	}
}

func BenchmarkQueue(b *testing.B) {
	for name, step := range map[string]uint32{"near": 1, "far": 1 << 17} {
		b.Run(name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var q Queue
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := uint32(i%64) * step
				q.Set(id, Time(r.IntN(1000)))
				if i%4 == 0 {
					q.Remove(id)
				}
			}
		})
	}
}

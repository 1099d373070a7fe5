package serialize

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The set of open places agrees with a list of booleans, for PSNs beyond the ring's size too.
func TestSlots(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s slots
	var want [ringSize]bool
	for range 2000 {
		at := wire.PSN(r.Uint32N(1 << 24))
		if want[at%ringSize] = r.IntN(3) == 0; want[at%ringSize] {
			s.add(at)
		} else {
			s.remove(at)
		}
		next := ringSize
		for i := ringSize - 1; i >= 0; i-- {
			if want[i] {
				next = i
			}
			if s.next(i) != next || s.has(wire.PSN(i)) != want[i] {
				t.Fatalf("from place %d: %d, want %d; %t", i, s.next(i), next, s.has(wire.PSN(i)))
			}
		}
		if s.next(ringSize) != ringSize {
			t.Fatal("a place behind the ring")
		}
	}
}

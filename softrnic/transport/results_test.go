package transport

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// TestResults compares the ring of results with a list of all of them, in which the newest are
// looked at first, and of which only the last ones count. PSNs repeat, as after 2^24 packets.
func TestResults(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		most := 1 + r.IntN(9)
		var s results
		var list []result
		for i := range 60 {
			res := result{psn: wire.PSN(r.IntN(12)), value: uint64(i)}
			s.add(res, most)
			list = append(list, res)
			if *s.last() != res {
				t.Fatalf("seed %d: the last result is %+v, want %+v", seed, *s.last(), res)
			}
			for psn := range wire.PSN(12) {
				var want *result
				for k := max(0, len(list)-most); k < len(list); k++ {
					if list[k].psn == psn {
						want = &list[k]
					}
				}
				switch got := s.find(psn); {
				case (got == nil) != (want == nil):
					t.Fatalf("seed %d: PSN %v of %d results, at most %d: %+v, want %+v", seed, psn, i+1, most, got, want)
				case got != nil && *got != *want:
					t.Fatalf("seed %d: PSN %v of %d results, at most %d: %+v, want %+v", seed, psn, i+1, most, *got, *want)
				}
			}
		}
	}
}

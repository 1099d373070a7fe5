package serve

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// The first entry about which faults were not asked is found in each lap around the ring, however many entries were
// taken since faults were asked last.
func TestUncheckedEntries(t *testing.T) {
	const n, slot = 7, 64
	q := programQP{ring: uverbs.NewRing(make([]byte, uverbs.RingLen(n, slot)), n, slot)}
	for taken := range uint32(5 * n) {
		for asked := range taken + 1 {
			for waiting := range uint32(n + 1) {
				q.head, q.checked = taken, asked
				q.ring.SetProducer(taken + waiting)
				if got := q.unchecked(); got != taken {
					t.Fatalf("%d taken, asked about %d, %d wait: %d", taken, asked, waiting, got)
				}
				for ahead := range waiting + 1 {
					q.checked = taken + ahead
					if got := q.unchecked(); got != q.checked {
						t.Fatalf("%d taken, asked about %d of %d that wait: %d", taken, ahead, waiting, got)
					}
				}
			}
		}
	}
}

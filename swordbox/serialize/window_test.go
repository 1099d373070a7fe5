package serialize

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The window keeps the newest records, and the newest READs and atomics, however many WRITEs are
// between them and however many PSNs pass without a record; no record is found under a PSN that is
// reused.
func TestWindowKeepsResults(t *testing.T) {
	const most = 16
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		w := window{max: most}
		type rec struct {
			psn    int // not wrapped
			span   int
			result bool
		}
		var all []rec
		next := 0
		psn := func(n int) wire.PSN { return wire.PSN(testPSN).Add(n & mask24) }
		rare := 1 + r.IntN(40)
		for range 3000 {
			n := 1 + r.IntN(3)
			if r.IntN(200) == 0 {
				n = 1 + r.IntN(1<<22)
			}
			w.age(psn(next), n)
			if r.IntN(5) > 0 && w.room() {
				x := rec{next, n, r.IntN(rare) == 0}
				op := wire.RCWriteOnly
				if x.result {
					op = wire.RCReadRequest
				}
				w.add(psn(next), op).span = n
				all = append(all, x)
			}
			next += n
			for o := w.oldest(); o != nil && (r.IntN(3) > 0 || !w.room()); o = w.oldest() {
				w.finish(o)
			}
			if r.IntN(10) > 0 {
				continue
			}
			results := 0
			for i := len(all) - 1; i >= max(0, len(all)-200); i-- {
				x := all[i]
				got := w.find(psn(x.psn + r.IntN(x.span)))
				found := got != nil && got.psn == psn(x.psn) && got.span == x.span && got.isResult() == x.result
				if x.result {
					results++
				}
				must := len(all)-i <= most || x.result && results <= most
				if old := next-x.psn >= 1<<23; !found && must && !old || got != nil && !found && !old {
					t.Fatalf("seed %d: %d PSNs back, record %d from the end, result %v: found %+v", seed, next-x.psn, len(all)-i, x.result, got)
				}
			}
			if got := w.find(psn(next + 3)); got != nil || len(w.ring) > 4*most {
				t.Fatalf("seed %d: %d slots; a PSN that was not used yet has %+v", seed, len(w.ring), got)
			}
		}
		counted := 0
		for pos := w.head; pos != w.tail; pos++ {
			if w.at(pos).isResult() {
				counted++
			}
		}
		if counted != w.results {
			t.Errorf("seed %d: %d READs, counted %d", seed, counted, w.results)
		}
	}
}

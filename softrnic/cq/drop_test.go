package cq

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Drop removes the completions of a queue pair that were pushed before it, from the ring and from chains, in any
// mixture with pushes, polls, purges and changes of the depth; all others come in their order.
func TestDropOfAnyMixture(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		const depth = 40
		most := 1 + r.IntN(8)
		c := newCQ(depth, most)
		sources := []*Source{c.Source(), c.Source(), c.Source()}
		type pushed struct {
			id   uint64
			from *Source
			qpn  wire.QPN
		}
		var want []pushed
		for id := range uint64(400) {
			switch s := sources[r.IntN(len(sources))]; r.IntN(12) {
			case 0, 1:
				n := wire.QPN(r.IntN(3))
				c.Drop(n)
				want = slices.DeleteFunc(want, func(p pushed) bool { return p.qpn == n })
			case 2:
				s.Purge()
				want = slices.DeleteFunc(want, func(p pushed) bool { return p.from == s })
			case 3:
				if err := c.Resize(newCQ(depth, most)); err != nil {
					t.Fatal(err)
				}
			case 4, 5:
				wc := make([]verbs.WC, r.IntN(8))
				n := c.Poll(wc)
				if n != min(len(wc), len(want)) {
					t.Fatalf("seed %d: %d of %d completions", seed, n, len(want))
				}
				for i := range n {
					if wc[i].ID != want[i].id {
						t.Fatalf("seed %d: completion %d, want %d", seed, wc[i].ID, want[i].id)
					}
				}
				want = want[n:]
			default:
				n := wire.QPN(r.IntN(3))
				if s.Push(0, &verbs.WC{ID: id, QPN: n}) {
					want = append(want, pushed{id, s, n})
				} else if c.Len() != depth {
					t.Fatalf("seed %d: refused with %d completions", seed, c.Len())
				}
			}
		}
	}
}

// The queue pairs whose completions are dropped are bounded, and are forgotten when nothing waits.
func TestDroppedAreBounded(t *testing.T) {
	c := newCQ(10, 1)
	s := c.Source()
	for range 3 {
		s.Push(0, &verbs.WC{QPN: 7})
	}
	for n := range wire.QPN(2 * maxDropped) {
		c.Drop(n + 1)
	}
	if len(c.dropped) != maxDropped {
		t.Errorf("%d are dropped", len(c.dropped))
	}
	if n := c.Poll(make([]verbs.WC, 4)); n != 0 || len(c.dropped) != 0 || c.Len() != 0 {
		t.Errorf("polled %d; %d dropped, %d left", n, len(c.dropped), c.Len())
	}
}

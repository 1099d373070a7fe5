package cq

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The queue gives the same results as a plain slice, with completions in the ring, in chains, and in
// both.
func TestAgreesWithModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCQ(1+r.IntN(30), 1+r.IntN(12))
		sources := make([]*Source, 1+r.IntN(9))
		for i := range sources {
			sources[i] = c.Source()
		}
		var model []verbs.WC
		next := uint64(0)
		for range 500 {
			n := r.IntN(len(sources))
			switch r.IntN(7) {
			case 0, 1, 2:
				next++
				wc := verbs.WC{ID: next, QPN: wire.QPN(n)}
				fits := len(model) < c.Cap()
				if sources[n].Push(0, &wc) != fits {
					t.Fatalf("seed %d: push of %d into %d of %d", seed, next, len(model), c.Cap())
				}
				if fits {
					model = append(model, wc)
				}
			case 3, 4, 5:
				got := make([]verbs.WC, r.IntN(4))
				k := c.Poll(got)
				if k != min(len(got), len(model)) {
					t.Fatalf("seed %d: polled %d of %d into %d", seed, k, len(model), len(got))
				}
				for i := range k {
					if got[i] != model[i] {
						t.Fatalf("seed %d: polled %+v, want %+v", seed, got[i], model[i])
					}
				}
				model = model[k:]
			default:
				sources[n].Purge()
				model = slices.DeleteFunc(slices.Clone(model), func(wc verbs.WC) bool { return wc.QPN == wire.QPN(n) })
			}
			if c.Len() != len(model) {
				t.Fatalf("seed %d: length %d, want %d", seed, c.Len(), len(model))
			}
		}
	}
}

// The removal of a queue pair's completions takes the same time with a million completions in the
// queue as with none, and their places are free at once.
func TestPurgeOfMany(t *testing.T) {
	const depth = 1 << 20
	for _, c := range []struct {
		name      string
		own, left int
	}{{"own", depth, 0}, {"others'", 1, depth - 1}, {"both in turn", depth / 2, depth / 2}} {
		q := queueOf(t, depth)
		own, other := q.Source(), q.Source()
		best := time.Hour
		others := 0
		for range 3 {
			for i := range c.own {
				if !own.Push(0, &verbs.WC{ID: 1}) {
					t.Fatalf("%s: completion %d has no place", c.name, i)
				}
				if others < c.left && other.Push(0, &verbs.WC{ID: 2}) {
					others++
				}
			}
			for others < c.left && other.Push(0, &verbs.WC{ID: 2}) {
				others++
			}
			start := time.Now()
			own.Purge()
			best = min(best, time.Since(start))
			if q.Len() != c.left {
				t.Fatalf("%s: %d completions are left, want %d", c.name, q.Len(), c.left)
			}
		}
		if best > 200*time.Microsecond {
			t.Errorf("%s: the purge took %v", c.name, best)
		}
		wc := make([]verbs.WC, 100)
		for n := q.Poll(wc); n > 0; n = q.Poll(wc) {
			for _, w := range wc[:n] {
				if w.ID != 2 {
					t.Fatalf("%s: polled %+v of the purged source", c.name, w)
				}
			}
		}
	}
}

// Purge goes through the ring and removes one chain, so a deep queue has a ring of maxRing
// completions, and each source one chain for the others.
func TestDeepQueueIsInChains(t *testing.T) {
	const depth = 8 * maxRing
	c := queueOf(t, depth)
	sources := []*Source{c.Source(), c.Source()}
	for i := range depth {
		if !sources[i%2].Push(0, &verbs.WC{ID: uint64(i)}) {
			t.Fatalf("completion %d has no place", i)
		}
	}
	if len(c.ring.all) != maxRing || c.ring.n != maxRing || len(c.chains) != 2 || c.Len() != depth {
		t.Fatalf("a ring of %d with %d completions, %d chains, %d completions in all", len(c.ring.all), c.ring.n, len(c.chains), c.Len())
	}
	sources[0].Purge()
	if c.ring.n != maxRing/2 || len(c.chains) != 1 || c.Len() != depth/2 {
		t.Fatalf("%d in the ring, %d chains, %d completions in all", c.ring.n, len(c.chains), c.Len())
	}
	wc := make([]verbs.WC, 100)
	next := uint64(1)
	for n := c.Poll(wc); n > 0; n = c.Poll(wc) {
		for _, w := range wc[:n] {
			if w.ID != next {
				t.Fatalf("completion %d, want %d", w.ID, next)
			}
			next += 2
		}
	}
	if next != depth+1 {
		t.Errorf("the next one is %d", next)
	}
}

// Push and Poll allocate no memory, with many sources as with one, in the ring and in chains.
func TestAllocatesNothing(t *testing.T) {
	c := newCQ(64, 8)
	sources := make([]*Source, 32)
	for i := range sources {
		sources[i] = c.Source()
	}
	wc := make([]verbs.WC, 20)
	step := func() {
		for i, s := range sources {
			s.Push(0, &verbs.WC{ID: uint64(i)})
		}
		sources[7].Purge()
		for c.Poll(wc) > 0 {
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An overrun loses the newest completion, and Push reports it (IBTA 10.10).
func TestOverrun(t *testing.T) {
	c := queueOf(t, 1)
	s := c.Source()
	if !s.Push(0, &verbs.WC{ID: 1}) {
		t.Fatal("first push")
	}
	if s.Push(0, &verbs.WC{ID: 2}) {
		t.Fatal("overrun not reported")
	}
	var wc [2]verbs.WC
	if n := c.Poll(wc[:]); n != 1 || wc[0].ID != 1 {
		t.Errorf("polled %d %+v", n, wc[0])
	}
	if c.SetID(7); c.ID() != 7 {
		t.Errorf("id %d", c.ID())
	}
}

// Arming asks for one event for the next completion, not for one that is already in the queue; a
// solicited arming, only for a solicited or failed one (IBTA 11.4.2).
func TestArming(t *testing.T) {
	c := queueOf(t, 16)
	s := c.Source()
	plain, solicited, failed := verbs.WC{}, verbs.WC{Solicited: true}, verbs.WC{Status: verbs.RemOpErr}
	for i, step := range []struct {
		arm  string
		push verbs.WC
		want bool
	}{
		{"", plain, false},
		{"any", plain, true},
		{"", plain, false}, // one event each time
		{"solicited", plain, false},
		{"", solicited, true},
		{"solicited", failed, true},
		{"any solicited", plain, true}, // a solicited arming does not weaken an earlier full one
		{"solicited any", plain, true},
	} {
		switch step.arm {
		case "any":
			c.Arm(false)
		case "solicited":
			c.Arm(true)
		case "any solicited":
			c.Arm(false)
			c.Arm(true)
		case "solicited any":
			c.Arm(true)
			c.Arm(false)
		}
		if c.Fired() {
			t.Fatalf("step %d: arming alone fired", i)
		}
		s.Push(0, &step.push)
		if got := c.Fired(); got != step.want {
			t.Errorf("step %d: fired %v, want %v", i, got, step.want)
		}
		if c.Fired() {
			t.Errorf("step %d: fired twice", i)
		}
	}
}

func TestBadDepth(t *testing.T) {
	for _, depth := range []int{-1, 0, maxDepth + 1} {
		if _, err := New(depth); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("depth %d: %v, want ErrInvalid", depth, err)
		}
	}
}

// BenchmarkPush pushes and polls completions of one source, and of many in turn.
func BenchmarkPush(bm *testing.B) {
	for _, n := range []int{1, 16, 1024} {
		bm.Run(strconv.Itoa(n), func(bm *testing.B) {
			c := queueOf(bm, 2*n)
			sources := make([]*Source, n)
			for i := range sources {
				sources[i] = c.Source()
			}
			wc := make([]verbs.WC, 16)
			for i := range n {
				sources[i].Push(0, &verbs.WC{})
			}
			for i := range bm.N {
				sources[i%n].Push(0, &verbs.WC{ID: 1})
				c.Poll(wc[:1])
			}
		})
	}
}

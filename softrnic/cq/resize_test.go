package cq

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func queueOf(t testing.TB, depth int) *CQ {
	t.Helper()
	c, err := New(depth)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A queue that is resized between pushes, polls and purges of several queue pairs gives the same
// completions in the same order as a list; it is full at its new depth.
func TestResizeKeepsTheOrder(t *testing.T) {
	resized := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		const maxRing = 4
		c := newCQ(1+r.IntN(8), maxRing)
		var sources [3]*Source
		for i := range sources {
			sources[i] = c.Source()
		}
		type entry struct {
			source int
			id     uint64
		}
		var list []entry
		for id := range uint64(300) {
			switch r.IntN(5) {
			case 0, 1:
				i := r.IntN(len(sources))
				if fits := sources[i].Push(0, &verbs.WC{ID: id}); fits != (len(list) < c.Cap()) {
					t.Fatalf("seed %d: %d of %d wait, and there is room: %v", seed, len(list), c.Cap(), fits)
				} else if fits {
					list = append(list, entry{i, id})
				}
			case 2:
				wc := make([]verbs.WC, r.IntN(3))
				n := c.Poll(wc)
				if n != min(len(wc), len(list)) {
					t.Fatalf("seed %d: %d completions of %d", seed, n, len(list))
				}
				for k := range n {
					if wc[k].ID != list[k].id {
						t.Fatalf("seed %d: completion %d, want %d", seed, wc[k].ID, list[k].id)
					}
				}
				list = list[n:]
			case 3:
				i := r.IntN(len(sources))
				sources[i].Purge()
				kept := list[:0:0]
				for _, e := range list {
					if e.source != i {
						kept = append(kept, e)
					}
				}
				list = kept
			default:
				depth := 1 + r.IntN(12)
				before := c.Cap()
				err := c.Resize(newCQ(depth, maxRing))
				switch {
				case len(list) > depth:
					if !errors.Is(err, verbs.ErrInvalid) || c.Cap() != before {
						t.Fatalf("seed %d: %d wait, depth %d: %v, now %d", seed, len(list), depth, err, c.Cap())
					}
				case err != nil || c.Cap() != depth:
					t.Fatalf("seed %d: %v, depth %d", seed, err, c.Cap())
				default:
					resized++
				}
			}
			if c.Len() != len(list) {
				t.Fatalf("seed %d: %d wait, want %d", seed, c.Len(), len(list))
			}
		}
	}
	if resized < 1000 {
		t.Errorf("resized %d times: the test does not test much", resized)
	}
}

// Arming and events stay; as many completions as may be moved are moved.
func TestResizeKeepsTheRest(t *testing.T) {
	c := queueOf(t, 1)
	s := c.Source()
	s.Push(0, &verbs.WC{ID: 1})
	s.Push(0, &verbs.WC{ID: 2})
	c.SetID(7)
	c.Arm(false)
	if err := c.Resize(queueOf(t, 2)); err != nil || c.ID() != 7 {
		t.Errorf("%v, number %d", err, c.ID())
	}
	if s.Push(0, &verbs.WC{ID: 3}); !c.Fired() {
		t.Error("the event is lost")
	}
	c = queueOf(t, maxMoved+1)
	s = c.Source()
	for range maxMoved + 1 {
		s.Push(0, &verbs.WC{})
	}
	if err := c.Resize(queueOf(t, maxMoved+1)); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("%d completions: %v", c.Len(), err)
	}
	c.Poll(make([]verbs.WC, 1))
	if err := c.Resize(queueOf(t, maxMoved)); err != nil || c.Len() != maxMoved {
		t.Errorf("%d completions: %v", c.Len(), err)
	}
}

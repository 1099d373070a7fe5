package cq

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func newCQ(t testing.TB, depth int) *CQ {
	t.Helper()
	c, err := New(7, depth)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The ring agrees with a plain slice.
func TestRingAgreesWithModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCQ(t, 1+r.IntN(9))
		var model []verbs.WC
		next := uint64(0)
		for range 500 {
			switch r.IntN(5) {
			case 0, 1:
				next++
				wc := verbs.WC{ID: next, QPN: wire.QPN(r.IntN(3))}
				fits := len(model) < c.Cap()
				if c.Push(wc) != fits {
					t.Fatalf("seed %d: push of %d into %d of %d", seed, next, len(model), c.Cap())
				}
				if fits {
					model = append(model, wc)
				}
			case 2, 3:
				got := make([]verbs.WC, r.IntN(4))
				n := c.Poll(got)
				if n != min(len(got), len(model)) {
					t.Fatalf("seed %d: polled %d of %d into %d", seed, n, len(model), len(got))
				}
				for i := range n {
					if got[i] != model[i] {
						t.Fatalf("seed %d: polled %+v, want %+v", seed, got[i], model[i])
					}
				}
				model = model[n:]
			default:
				qpn := wire.QPN(r.IntN(3))
				c.Purge(qpn)
				var kept []verbs.WC
				for _, wc := range model {
					if wc.QPN != qpn {
						kept = append(kept, wc)
					}
				}
				model = kept
			}
			if c.Len() != len(model) {
				t.Fatalf("seed %d: length %d, want %d", seed, c.Len(), len(model))
			}
		}
	}
}

// An overrun loses the newest completion and is never forgotten (IBTA 10.10).
func TestOverrun(t *testing.T) {
	c := newCQ(t, 1)
	if !c.Push(verbs.WC{ID: 1}) || c.Overrun() {
		t.Fatal("first push")
	}
	if c.Push(verbs.WC{ID: 2}) || !c.Overrun() {
		t.Fatal("overrun not reported")
	}
	var wc [2]verbs.WC
	if n := c.Poll(wc[:]); n != 1 || wc[0].ID != 1 || !c.Overrun() {
		t.Errorf("polled %d %+v, overrun %v", n, wc[0], c.Overrun())
	}
	if c.ID() != 7 {
		t.Errorf("id %d", c.ID())
	}
}

// Arming: one event for the next completion, not for one that is there; solicited or failed ones if so asked
// (IBTA 11.4.2).
func TestArming(t *testing.T) {
	c := newCQ(t, 16)
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
		{"any solicited", plain, true}, // asking for less does not take back
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
		c.Push(step.push)
		if got := c.Fired(); got != step.want {
			t.Errorf("step %d: fired %v, want %v", i, got, step.want)
		}
		if c.Fired() {
			t.Errorf("step %d: fired twice", i)
		}
	}
}

func TestBadDepth(t *testing.T) {
	for _, depth := range []int{-1, 0, MaxDepth + 1} {
		if _, err := New(1, depth); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("depth %d: %v, want ErrInvalid", depth, err)
		}
	}
}

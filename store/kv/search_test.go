package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
)

// model describes a key to porcupine, which searches without the four observations of search.
var model = porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{value: absent}} },
	Step: func(s, in, out any) (list []any) {
		next, n := step(s.(state), in.(input), out.(output))
		for _, s := range next[:n] {
			list = append(list, s)
		}
		return list
	},
	Equal: func(a, b any) bool { return a.(state) == b.(state) },
}

func byPorcupine(list []operation) bool {
	var ops []porcupine.Operation
	for _, o := range list {
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: o.in, Output: o.out, Call: o.call, Return: o.end})
	}
	return porcupine.CheckOperations(model.ToModel(), ops)
}

// invented makes a history of clients that write a key in some order, with the answers of that
// order. Some answers are missing, and a few belong to another order.
func invented(r *rand.Rand) *History {
	h := NewHistory()
	now, st := state{value: absent}, uint64(0)
	type pending struct {
		index int
		out   output
	}
	clients := make([]*pending, 2+r.IntN(4))
	for range 4 + r.IntN(24) {
		c := r.IntN(len(clients))
		if p := clients[c]; p != nil {
			if r.IntN(8) > 0 {
				h.answer(1, p.index, p.out, 0)
			}
			clients[c] = nil
			continue
		}
		if r.IntN(12) == 0 {
			h.Loss(0, Places(1+r.IntN(3)))
			if r.IntN(2) == 0 && now.value != absent {
				now.value = lostValue
			}
			continue
		}
		in := input{kind: opKind(r.IntN(5))}
		if in.kind.writes() {
			st++
			in.value = st
		}
		value, legal := apply(now.value, in)
		out := output{outcome: legal, value: now.value, where: Places(1 + r.IntN(3))}
		if now.value = value; r.IntN(16) == 0 {
			out.outcome = outcome(r.IntN(len(outcomeNames)))
		}
		if r.IntN(12) == 0 {
			out.value = 1 + r.Uint64N(st+1)
		}
		clients[c] = &pending{h.invoke(1, c, in, 0), out}
	}
	return h
}

// search and porcupine decide every history in the same way.
func TestSearchAgreesWithPorcupine(t *testing.T) {
	good, bad := 0, 0
	for seed := range uint64(3000) {
		h := invented(rand.New(rand.NewPCG(seed, 14)))
		want := byPorcupine(needed(h.of(1)))
		if err := h.Check(MostStates); (err == nil) != want || errors.Is(err, ErrUndecided) {
			t.Fatalf("seed %d: %v, and porcupine says %v\n%s", seed, err, want, h.text(1))
		}
		if want {
			good++
		} else {
			bad++
		}
	}
	if good < 300 || bad < 300 {
		t.Errorf("%d histories have an order, and %d have none: too few of one kind", good, bad)
	}
}

// crossed is a history in which every INSERT and DELETE of some clients is without an answer, and
// every value is found by others at the same time. With a stale GET at its end, no order explains
// it.
func crossed(stale bool) *History {
	h := NewHistory()
	h.answer(1, h.invoke(1, 0, insert(1), 0), ok(), 0)
	for n := uint64(1); n <= 40; n++ {
		h.invoke(1, 1, del, 0)
		h.invoke(1, 2, insert(1000+n), 0)
		h.invoke(1, 3, put(2000+n), 0)
		a, b := h.invoke(1, 4, put(10*n), 0), h.invoke(1, 5, put(10*n+1), 0)
		c := h.invoke(1, 6, get, 0)
		h.answer(1, a, ok(), 0)
		h.answer(1, c, reads(10*n+n%2), 0)
		h.answer(1, b, ok(), 0)
		h.answer(1, h.invoke(1, 7, get, 0), reads(2000+n), 0)
	}
	if stale {
		h.answer(1, h.invoke(1, 0, get, 0), reads(10), 0)
	}
	return h
}

// The bound of a search is a number of states, not a time, and says when it was too small.
func TestSearchIsBounded(t *testing.T) {
	if err := crossed(false).Check(2000); err != nil {
		t.Error(err)
	}
	if err := crossed(true).Check(MostStates); err == nil || errors.Is(err, ErrUndecided) {
		t.Errorf("a stale GET at the end: %v", err)
	}
	if err := crossed(false).Check(20); !errors.Is(err, ErrUndecided) {
		t.Errorf("with 20 states: %v", err)
	}
}

// The observations keep the number of visited states small, also in many small histories. A search
// visits exactly as many states as its limit allows.
func TestSearchVisitsFewStates(t *testing.T) {
	visits := func(h *History) (int, bool) {
		s := newSearch(needed(h.of(1)), MostStates)
		found := s.found(state{value: absent})
		return s.states, found
	}
	for name, c := range map[string]struct {
		h    *History
		most int
	}{"an order": {crossed(false), 230}, "no order": {crossed(true), 15}, "most without an answer": {manyOpen(4), 10_500}} {
		n, found := visits(c.h)
		if n > c.most {
			t.Errorf("%s: %d states, want at most %d", name, n, c.most)
		}
		if err := c.h.Check(n); errors.Is(err, ErrUndecided) || (err == nil) != found {
			t.Errorf("%s, with the %d states that it needs: %v", name, n, err)
		}
		if err := c.h.Check(n - 1); !errors.Is(err, ErrUndecided) {
			t.Errorf("%s, with one state less: %v", name, err)
		}
	}
	all := 0
	for seed := range uint64(3000) {
		n, _ := visits(invented(rand.New(rand.NewPCG(seed, 14))))
		all += n
	}
	if all > 13_000 {
		t.Errorf("%d states in 3000 small histories", all)
	}
}

// manyOpen is a history of a few clients in which most operations have no answer and memory is lost
// again and again. The search fails in its states with very many sets of these operations.
func manyOpen(n int) *History {
	h := NewHistory()
	h.answer(1, h.invoke(1, 0, insert(1), 0), ok(), 0)
	for i := range n {
		h.invoke(1, 1+3*i, del, 0)
		h.invoke(1, 2+3*i, insert(uint64(500+i)), 0)
		h.invoke(1, 3+3*i, put(uint64(100+i)), 0)
		h.Loss(0, Places(1+i%3))
	}
	for i := range n {
		a, b := h.invoke(1, 0, get, 0), h.invoke(1, 1000, put(uint64(700+i)), 0)
		h.answer(1, a, reads(uint64(100+i)), 0)
		h.answer(1, b, output{outcome: done, where: Places(1 + i%3)}, 0)
	}
	h.answer(1, h.invoke(1, 0, get, 0), reads(100), 0)
	return h
}

// A visit of a state compares a bounded number of sets, however many have failed there.
func TestAVisitOfAStateIsBounded(t *testing.T) {
	s := newSearch(needed(manyOpen(10).of(1)), 1<<18)
	if s.found(state{value: absent}) || !s.undecided() {
		t.Fatal("the history is decided: take a harder one")
	}
	compared, most := 0, 0
	for _, f := range s.failed {
		compared, most = max(compared, len(f.few)), max(most, len(f.few)+len(f.more))
	}
	if compared > mostCompared || most <= mostCompared {
		t.Errorf("a state that has failed with %d sets compares %d of them, want more sets than %d, and at most so many compared", most, compared, mostCompared)
	}
}

// Every set with which the search has failed in a state is found again, also those that are not
// compared one by one. A set that was not added is not found.
func TestFailuresAreFoundAgain(t *testing.T) {
	var f failures
	sets := 0
	for i := range 64 {
		for j := range i {
			if f.has(1<<i | 1<<j) {
				t.Fatalf("bits %d and %d were found before they were noted", i, j)
			}
			if sets++; !f.has(1<<i | 1<<j) {
				t.Fatalf("bits %d and %d are not found again", i, j)
			}
		}
	}
	if len(f.few) != mostCompared || len(f.few)+len(f.more) != sets {
		t.Errorf("%d and %d of %d sets", len(f.few), len(f.more), sets)
	}
	if !f.has(1<<1 | 1<<0 | 1<<63) {
		t.Error("more operations are used up than when the state failed, and it is tried again")
	}
	if f.has(1<<0) || len(f.few) >= mostCompared || !f.has(1<<0|1<<63) {
		t.Errorf("%d sets are compared after one that is a part of many", len(f.few))
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, stale := range []bool{false, true} {
		b.Run(fmt.Sprintf("stale=%v", stale), func(b *testing.B) {
			h, states := crossed(stale), 0
			for b.Loop() {
				s := newSearch(needed(h.of(1)), MostStates)
				s.found(state{value: absent})
				states = s.states
			}
			b.ReportMetric(float64(states), "states")
		})
	}
}

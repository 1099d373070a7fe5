package cq

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A queue of the largest depth has memory for the completions that are in it, and gives most of it
// back when they were polled.
func TestMemoryIsThatOfTheCompletions(t *testing.T) {
	c, err := New(maxDepth)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, ring, blocks int) {
		t.Helper()
		if len(c.ring.all) != ring || len(c.places.blocks) != blocks {
			t.Errorf("%s: room for %d in the ring and %d blocks, want %d and %d", when, len(c.ring.all), len(c.places.blocks), ring, blocks)
		}
	}
	check("new", 0, 0)
	s := c.Source()
	next, polled := uint64(0), uint64(0)
	push := func(n int) {
		t.Helper()
		for range n {
			if next++; !s.Push(0, &verbs.WC{ID: next}) {
				t.Fatalf("completion %d has no place", next)
			}
		}
	}
	wc := make([]verbs.WC, 100)
	poll := func() {
		t.Helper()
		for n := c.Poll(wc); n > 0; n = c.Poll(wc) {
			for i := range wc[:n] {
				if polled++; wc[i].ID != polled {
					t.Fatalf("polled %d, want %d", wc[i].ID, polled)
				}
			}
		}
		if polled != next {
			t.Fatalf("polled %d of %d", polled, next)
		}
	}
	push(1)
	check("one completion", firstRing, 0)
	push(firstRing)
	check("one more than the first ring", 2*firstRing, 0)
	poll()
	push(maxRing + 1)
	check("one more than the ring", maxRing, 1)
	push(100*blockLen - 1)
	check("a hundred blocks", maxRing, 100)
	poll()
	check("all polled", maxRing, keptBlocks)
	for range 3 {
		push(maxRing + 20*blockLen)
		check("again", maxRing, 20)
		poll()
		check("all polled again", maxRing, keptBlocks)
	}
	push(maxRing + 30*blockLen)
	s.Purge()
	check("purged", maxRing, keptBlocks)
	if c.Len() != 0 {
		t.Errorf("%d completions are left", c.Len())
	}
}

// A queue whose completions are polled at once allocates nothing.
func TestSteadyQueueDoesNotAllocate(t *testing.T) {
	c, err := New(maxDepth)
	if err != nil {
		t.Fatal(err)
	}
	s, wc := c.Source(), make([]verbs.WC, 64)
	round := func() {
		for range 4 * maxRing {
			s.Push(0, &verbs.WC{ID: 1})
		}
		for c.Poll(wc) > 0 {
		}
	}
	round()
	if n := testing.AllocsPerRun(10, round); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

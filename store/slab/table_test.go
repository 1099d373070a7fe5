package slab

import (
	"slices"
	"testing"
)

// A segment that rests keeps its class until every client has left the epoch in which its rest began.
func TestRest(t *testing.T) {
	tab := NewTable(2, 4)
	a, b, c := Segment{0, 1}, Segment{1, 1}, Segment{1, 3}
	tab.Set(Segment{0, 0}, 0)
	for _, s := range []Segment{a, b, c} {
		tab.Set(s, 5)
	}
	tab.Rest(a, 7)
	tab.Rest(b, 8)
	if !tab.Rests(a) || tab.Rests(c) || tab.Resting() != 2 || !tab.Has(a, 5) || tab.Has(a, 4) || tab.Unused(Anywhere) != 4 || tab.Unused(1) != 2 {
		t.Fatalf("%+v", tab)
	}
	for _, step := range []struct {
		oldest, now uint32
		waiting     bool
		left        int
	}{{7, 8, true, 2}, {7, 9, false, 2}, {8, 8, true, 1}, {8, 9, false, 1}, {9, 9, false, 0}} {
		if w := tab.Wake(step.oldest, step.now); w != step.waiting || tab.Resting() != step.left {
			t.Errorf("oldest epoch %d of %d: waiting %v, %d rest; want %v, %d", step.oldest, step.now, w, tab.Resting(), step.waiting, step.left)
		}
	}
	if !slices.Equal(tab.Row(0), []byte{1, None, None, None}) || !slices.Equal(tab.Row(1), []byte{None, None, None, 6}) {
		t.Errorf("classes %v, %v", tab.Row(0), tab.Row(1))
	}
}

// Stir ends the rest of one server's segments only, and they keep their class.
func TestStir(t *testing.T) {
	tab := NewTable(2, 1)
	for i := range 2 {
		tab.Set(Segment{i, 0}, 3)
		tab.Rest(Segment{i, 0}, 1)
	}
	tab.Stir(0)
	tab.Wake(2, 2)
	if !tab.Has(Segment{0, 0}, 3) || tab.Has(Segment{1, 0}, 3) {
		t.Errorf("classes %v, %v", tab.Row(0), tab.Row(1))
	}
	if _, ok := tab.Find(0); ok {
		t.Error("server 0 has a segment without class")
	}
	if s, ok := tab.Find(1); !ok || s != (Segment{1, 0}) {
		t.Errorf("server 1: %v, %v", s, ok)
	}
}

// Chunks give each place of what was taken once, all but the first of each run, and grow with what
// was taken.
func TestChunks(t *testing.T) {
	const length, memory = 64, 64 << 16 // 64 places are 1/memoryShare of it
	var c Chunks
	if n := c.Want(length, 1<<20, memory); n != length {
		t.Errorf("wants %d bytes at first", n)
	}
	if n := c.Want(length, 1<<20, 10*memory); n != 10*length {
		t.Errorf("wants %d bytes of a server with more memory", n)
	}
	if _, _, ok := c.Take(length); ok {
		t.Error("a place of nothing")
	}
	seen := make(map[Segment]bool)
	take := func() (n int) {
		for {
			server, at, ok := c.Take(length)
			if !ok {
				return n
			}
			if k := (Segment{server, int(at)}); seen[k] || at%length != 0 {
				t.Fatalf("place %d of server %d twice", at, server)
			} else {
				seen[k] = true
			}
			n++
		}
	}
	if !c.Took(0, 0, 10*length, length, false) || !c.Took(1, 640, 641, length, false) || c.Took(0, 640, 640, length, false) {
		t.Error("whether there was a first place")
	}
	if n := take(); n != 9 {
		t.Errorf("%d places of a run of 10 and one that is too short", n)
	}
	if c.Took(1, 1<<20, 1<<20+640*length, length, true); take() != 639 {
		t.Error("places of a run of 640")
	}
	if n := c.Want(length, 1<<20, memory); n != 10*length {
		t.Errorf("wants %d bytes after 650 places", n)
	}
	if n := c.Want(length, 100, memory); n != 100 {
		t.Errorf("wants %d bytes of at most 100", n)
	}
	for _, want := range []struct {
		server int
		unused bool
	}{{0, true}, {1, false}, {2, true}, {0, true}} {
		if server, unused := c.Next(3); server != want.server || unused != want.unused {
			t.Errorf("server %d, unused %v; want %+v", server, unused, want)
		}
	}
}

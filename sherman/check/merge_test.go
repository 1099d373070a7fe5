package check_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

// merge is a merge of two leaves of a rig, step by step.
type merge struct {
	r                        *rig
	left, closed, right, top layout.Addr
}

// newMerge makes a tree in which a leaf in the middle has two records.
func newMerge(t *testing.T) *merge {
	r := newRig(t, layout.Hardened, 3000)
	i := len(r.levels[0]) / 2
	m := &merge{r: r, left: r.levels[0][i-1], closed: r.levels[0][i], right: r.levels[0][i+1]}
	for _, top := range r.levels[1] {
		if child, _ := r.page(top).Separator(r.page(m.closed).Lowest); child == m.closed {
			m.top = top
		}
	}
	for _, a := range []layout.Addr{m.closed, m.right} {
		p := r.page(a)
		for n, slot := range p.Order(nil) {
			if n >= 2 {
				p.Remove(int(slot))
			}
		}
	}
	r.want = check.Content{}
	for _, a := range r.levels[0] {
		p := r.page(a)
		for _, slot := range p.Order(nil) {
			rec, _ := p.Slot(int(slot))
			r.want.Add(rec.Key)
		}
	}
	return m
}

// steps are those of layout.Stage, in their order.
func (m *merge) steps() []func() {
	r := m.r
	return []func(){
		func() { edit(r.page(m.closed)).Close() },
		func() { edit(r.page(m.right)).Absorb(r.page(m.closed)) },
		func() { edit(r.page(m.top)).Redirect(m.closed, m.right) },
		func() { edit(r.page(m.left)).Bypass(m.right) },
		func() { edit(r.page(m.closed)).Retire(0) },
	}
}

// After each step of a merge the tree is valid and has the same keys, each once, also for Visit. The
// report counts the merge as half done, and the page as free in the end.
func TestMergesInSteps(t *testing.T) {
	for n := range 6 {
		m := newMerge(t)
		for _, step := range m.steps()[:n] {
			step()
		}
		cfg := m.r.config()
		cfg.Unreachable = 1
		visited := uint64(0)
		last := uint64(0)
		cfg.Visit = func(key uint64, _ []byte) error {
			if key <= last {
				t.Errorf("after %d steps: key %d is visited after %d", n, key, last)
			}
			visited, last = visited+1, key
			return nil
		}
		rep := must(t, cfg)
		want := [...]struct{ closed, free, unreachable int }{{0, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {0, 0, 1}, {0, 1, 0}}[n]
		if rep.Err() != nil || rep.Content != m.r.want || visited != m.r.want.Keys {
			t.Errorf("after %d steps: %d keys, %d visited, want %d; %v", n, rep.Content.Keys, visited, m.r.want.Keys, rep.Err())
		}
		if rep.Closed != want.closed || rep.Free != want.free || rep.Unreachable != want.unreachable || rep.HalfSplits != 0 {
			t.Errorf("after %d steps: %+v; want %+v", n, rep, want)
		}
	}
}

// damagedMerges are faults of trees with merges, and where they are.
var damagedMerges = []struct {
	name string
	want check.Kind
	at   func(m *merge) layout.Addr
	do   func(m *merge)
}{
	{"pointer to a page that has left the tree", check.Gone, func(m *merge) layout.Addr { return m.closed }, func(m *merge) {
		edit(m.r.page(m.closed)).Close()
		edit(m.r.page(m.closed)).Retire(0)
	}},
	{"pointer to an earlier incarnation", check.Gone, func(m *merge) layout.Addr { return m.closed }, func(m *merge) {
		m.r.change(m.closed, func(h *layout.Header) { h.Self, _ = h.Self.Next() })
	}},
	{"taken-over range, but the separator is above the reach", check.Separator, func(m *merge) layout.Addr { return m.top }, func(m *merge) {
		for _, step := range m.steps()[:2] {
			step()
		}
		m.r.change(m.right, func(h *layout.Header) { h.Reach = h.Lowest + 1 })
	}},
	{"separator below its child", check.Separator, func(m *merge) layout.Addr { return m.top }, func(m *merge) {
		m.r.change(m.closed, func(h *layout.Header) { h.Lowest++; h.Reach = h.Highest })
	}},
	{"closed page that is its own sibling", check.Gap, func(m *merge) layout.Addr { return m.closed }, func(m *merge) {
		edit(m.r.page(m.closed)).Close()
		edit(m.r.page(m.closed)).Bypass(m.closed)
	}},
	{"live pages of the same range", check.Gap, func(m *merge) layout.Addr { return m.right }, func(m *merge) {
		m.r.change(m.right, func(h *layout.Header) { h.Lowest = m.r.page(m.closed).Lowest })
	}},
}

func TestDamagedMerges(t *testing.T) {
	for _, d := range damagedMerges {
		m := newMerge(t)
		d.do(m)
		cfg := m.r.config()
		cfg.Want, cfg.Unreachable = nil, -1
		rep := must(t, cfg)
		found := false
		for _, p := range rep.Problems {
			found = found || p.Kind == d.want && p.At == d.at(m)
		}
		if !found {
			t.Errorf("%s: want a problem of kind %s at %v; %v", d.name, d.want, d.at(m), rep.Err())
		}
	}
}

// A page whose memory was reused is part of the tree, if all pointers name the new incarnation.
func TestReusedPages(t *testing.T) {
	m := newMerge(t)
	var next layout.Addr
	m.r.change(m.closed, func(h *layout.Header) {
		next, _ = h.Self.Next()
		h.Self = next
	})
	edit(m.r.page(m.left)).Bypass(next)
	edit(m.r.page(m.top)).Redirect(m.closed, next)
	if rep := must(t, m.r.config()); rep.Err() != nil {
		t.Error(rep.Err())
	}
}

// checks counts how many times a configuration reads the first page of the memory.
func checks(cfg *check.Config) *int {
	n, read, first := new(int), cfg.Read, layout.At(0, cfg.Super.FirstChunk())
	cfg.Read = func(a layout.Addr, b []byte) error {
		if a == first {
			*n++
		}
		return read(a, b)
	}
	return n
}

// A check that finds problems is repeated only if pages are being merged, and at most four times in
// all.
func TestChecksAreRepeated(t *testing.T) {
	fault := func(m *merge) { // a duplicate: nothing is read again because of it
		p := m.r.page(m.left)
		rec, _ := p.Slot(0)
		p.Put(p.FreeSlot(), rec.Key, rec.Value)
	}
	for _, c := range []struct {
		name         string
		steps        int
		free, damage bool
		want         int
	}{
		{"nothing", 0, false, false, 1},
		{"a problem", 0, false, true, 1},
		{"a merge", 1, false, false, 1},
		{"a merge and a problem", 1, false, true, 4},
		{"a free page and a problem", 5, false, true, 4},
		{"a merge, a free page and a problem", 1, true, true, 4},
	} {
		m := newMerge(t)
		for _, step := range m.steps()[:c.steps] {
			step()
		}
		if c.free {
			p := m.r.init(m.r.alloc(0), layout.Header{Lowest: 5, Highest: 7})
			edit(p).Retire(0)
		}
		if c.damage {
			fault(m)
		}
		cfg := m.r.config()
		cfg.Want = nil
		n := checks(&cfg)
		rep := must(t, cfg)
		if *n != c.want || (rep.Wrong > 0) != c.damage {
			t.Errorf("%s: %d checks, want %d; %v", c.name, *n, c.want, rep.Err())
		}
	}
	// A problem that is gone in the second check is not reported.
	m := newMerge(t)
	m.steps()[0]()
	fault(m)
	cfg := m.r.config()
	cfg.Want = nil
	n := checks(&cfg)
	read, healed := cfg.Read, false
	cfg.Read = func(a layout.Addr, b []byte) error {
		if p := m.r.page(m.left); *n == 1 && a.Server() == 1 && !healed { // the first check has read server 0
			defer func() { p.Remove(int(p.Order(nil)[1])) }()
			healed = true
		}
		return read(a, b)
	}
	if rep := must(t, cfg); *n != 2 || rep.Err() != nil {
		t.Errorf("%d checks; %v", *n, rep.Err())
	}
}

// While clients merge pages, a check may repeat itself, and then finds no problem and the same keys,
// whenever the steps of the merge take place.
func TestMergesMeanwhile(t *testing.T) {
	for seed := range uint64(300) {
		m := newMerge(t)
		rnd := rand.New(rand.NewPCG(seed, 3))
		cfg := m.r.config()
		cfg.Block, cfg.Unreachable, cfg.HalfSplits = m.r.super.Shape.Page, 1, -1
		reads := m.r.pages(0) + m.r.pages(1)
		var at []int // before which READ each step is done
		for range m.steps() {
			at = append(at, rnd.IntN(reads+1))
		}
		slices.Sort(at)
		n, done := 0, 0
		cfg.Read = func(a layout.Addr, b []byte) error {
			for ; done < len(at) && at[done] <= n; done++ {
				m.steps()[done]()
			}
			n++
			return m.r.read(a, b)
		}
		if rep := must(t, cfg); rep.Err() != nil {
			t.Errorf("seed %d: %v", seed, rep.Err())
		}
	}
}

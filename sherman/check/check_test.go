package check_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

var kinds = []layout.Kind{layout.Hardened, layout.Published, layout.Checksummed}

// A tree of any size has no problems, and Visit gets its records in order.
func TestWholeTrees(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{0, 1, 20, 40, 1000, 100_000} {
			r := newRig(t, kind, n)
			cfg := r.config()
			seen, last := 0, uint64(0)
			cfg.Visit = func(key uint64, v []byte) error {
				if key <= last || string(v) != string(value(key)) {
					return fmt.Errorf("value %x, after key %d", v, last)
				}
				seen, last = seen+1, key
				return nil
			}
			rep, err := check.Check(cfg)
			if err != nil || rep.Err() != nil || seen != n || rep.Content.Keys != uint64(n) || len(rep.Levels) != len(r.levels) {
				t.Errorf("%v, %d keys: %v %v, %d seen: %v", kind, n, err, rep.Err(), seen, rep)
			}
		}
	}
}

// damage is one way to break a tree, and the kind of problem that must be reported.
type damage struct {
	name string
	want check.Kind
	only layout.Kind // the kind of pages, if only one kind can be damaged so
	one  bool
	do   func(r *rig)
}

// leaf and inner return pages in the middle of their levels.
func (r *rig) leaf() layout.Addr  { return r.levels[0][len(r.levels[0])/2] }
func (r *rig) inner() layout.Addr { return r.levels[1][len(r.levels[1])/2] }

func (r *rig) free(a layout.Addr) int { return r.page(a).FreeSlot() }

var damages = []damage{
	{name: "root word is zero", want: check.BadRoot, do: func(r *rig) { r.root = 0 }},
	{name: "root word beyond the allocated memory", want: check.BadRoot, do: func(r *rig) { r.root = layout.At(0, r.next[0]) }},
	{name: "root word of a leaf in the middle", want: check.Gap, do: func(r *rig) { r.root = r.leaf() }},
	{name: "root word of an old root", want: check.Lost, do: func(r *rig) { r.root = r.levels[1][0] }},
	{name: "leaf without bytes", want: check.BadPage, do: func(r *rig) { clear(r.bytes(r.leaf())) }},
	{name: "internal page without bytes", want: check.BadPage, do: func(r *rig) { clear(r.bytes(r.inner())) }},
	{name: "header with a flipped bit", want: check.BadPage, only: layout.Hardened, one: true, do: func(r *rig) { r.bytes(r.leaf())[9] ^= 4 }},
	{name: "page that stays torn", want: check.Torn, only: layout.Published, one: true, do: func(r *rig) { r.bytes(r.leaf())[8]++ }},
	{name: "record that stays torn", want: check.Torn, only: layout.Published, one: true, do: func(r *rig) { r.bytes(r.leaf())[44]++ }},
	{name: "record younger than its page", want: check.Torn, only: layout.Hardened, one: true, do: func(r *rig) {
		p := r.page(r.leaf())
		p.Epoch += 7
		p.Put(0, p.Lowest, value(p.Lowest))
	}},
	{name: "page of another tree", want: check.Misplaced, only: layout.Hardened, one: true, do: func(r *rig) {
		r.change(r.leaf(), func(h *layout.Header) { h.Generation++ })
	}},
	{name: "page in another place", want: check.Misplaced, only: layout.Hardened, one: true, do: func(r *rig) {
		r.change(r.leaf(), func(h *layout.Header) { h.Self = r.inner() })
	}},
	{name: "leaf of level 3", want: check.BadLevel, do: func(r *rig) { r.change(r.leaf(), func(h *layout.Header) { h.Level = 3 }) }},
	{name: "gap between leaves", want: check.Gap, do: func(r *rig) { r.change(r.leaf(), func(h *layout.Header) { h.Highest -= 5 }) }},
	{name: "leaves that overlap", want: check.Gap, do: func(r *rig) { r.change(r.leaf(), func(h *layout.Header) { h.Highest += 5 }) }},
	{name: "gap between internal pages", want: check.Gap, do: func(r *rig) {
		r.change(r.levels[1][0], func(h *layout.Header) { h.Highest += 5 })
	}},
	{name: "leaf with no range", want: check.Gap, do: func(r *rig) { r.change(r.leaf(), func(h *layout.Header) { h.Highest = h.Lowest }) }},
	{name: "chain that ends early", want: check.Gap, do: func(r *rig) { r.change(r.leaf(), func(h *layout.Header) { h.Sibling = 0 }) }},
	{name: "chain that skips a page", want: check.Gap, do: func(r *rig) {
		r.change(r.leaf(), func(h *layout.Header) { h.Sibling = r.page(h.Sibling).Sibling })
	}},
	{name: "chain that goes back", want: check.Gap, do: func(r *rig) {
		r.change(r.leaf(), func(h *layout.Header) { h.Sibling = r.levels[0][0] })
	}},
	{name: "sibling outside of the memory", want: check.Dangling, do: func(r *rig) {
		r.change(r.leaf(), func(h *layout.Header) { h.Sibling = layout.At(9, 1<<40) })
	}},
	{name: "sibling in memory that is not allocated", want: check.Unallocated, do: func(r *rig) {
		r.change(r.leaf(), func(h *layout.Header) { h.Sibling = layout.At(1, r.next[1]) })
	}},
	{name: "child that is no page", want: check.Dangling, do: func(r *rig) {
		p := r.page(r.inner())
		p.PutChild(p.Highest-1, layout.At(0, 77))
	}},
	{name: "separator that is not its child's", want: check.Separator, do: func(r *rig) {
		p := r.page(r.inner())
		p.PutChild(p.Highest-1, r.leaf())
	}},
	{name: "separator twice", want: check.Duplicate, do: func(r *rig) {
		p := r.page(r.inner())
		rec, _ := p.Slot(3)
		p.PutChild(rec.Key, rec.Child())
	}},
	{name: "internal page whose records are not sorted", want: check.Unsorted, only: layout.Published, one: true, do: func(r *rig) {
		b := r.bytes(r.inner())
		first := append([]byte(nil), b[44:60]...)
		copy(b[44:60], b[60:76])
		copy(b[60:76], first)
	}},
	{name: "leftmost child of another page", want: check.Separator, do: func(r *rig) {
		r.change(r.inner(), func(h *layout.Header) { h.Leftmost = r.levels[0][0] })
	}},
	{name: "key twice in a leaf", want: check.Duplicate, do: func(r *rig) {
		p := r.page(r.leaf())
		rec, _ := p.Slot(3)
		p.Put(r.free(r.leaf()), rec.Key, value(rec.Key))
	}},
	{name: "key in two leaves", want: check.OutOfRange, only: layout.Published, one: true, do: func(r *rig) {
		r.page(r.leaf()).Put(r.free(r.leaf()), keyOf(0), value(keyOf(0)))
	}},
	{name: "lost key", want: check.WrongKeys, do: func(r *rig) { r.page(r.leaf()).Remove(2) }},
	{name: "key that was not inserted", want: check.WrongKeys, do: func(r *rig) {
		p := r.page(r.leaf())
		p.Put(r.free(r.leaf()), p.Lowest+1, value(1))
	}},
	{name: "key in place of another", want: check.WrongKeys, do: func(r *rig) {
		p := r.page(r.leaf())
		rec, _ := p.Slot(2)
		p.Put(2, rec.Key+1, value(1))
	}},
	{name: "lock of a dead owner", want: check.DeadLock, do: func(r *rig) {
		r.locks = []check.Lock{{Server: 1, Index: 5, Tag: layout.MakeTag(3, 1)}}
	}},
	{name: "page that no page names", want: check.Lost, do: func(r *rig) {
		r.init(r.alloc(0), layout.Header{Lowest: 5, Highest: 7})
	}},
	{name: "leaf without a separator", want: check.Unlinked, do: func(r *rig) { r.split() }},
}

// split leaves a split half done: a leaf has a sibling that no separator names.
func (r *rig) split() {
	p := r.page(r.leaf())
	at := r.alloc(1)
	var sib layout.Page
	halve(p, at, r.bytes(at), &sib)
}

// halve moves the upper half of the records of p to the page sib at an address, in the bytes b.
func halve(p *layout.Page, at layout.Addr, b []byte, sib *layout.Page) {
	order := p.Order(nil)
	first, _ := p.Slot(int(order[len(order)/2]))
	edit(p).SplitAt(first.Key, layout.Fresh{At: at}, b, sib)
}

// edit begins a change of page p.
func edit(p *layout.Page) *layout.Edit { return &layout.Edit{Page: p} }

func TestDamageIsFound(t *testing.T) {
	for _, kind := range kinds {
		for _, d := range damages {
			if d.one && kind != d.only {
				continue
			}
			r := newRig(t, kind, 5000)
			d.do(r)
			rep := r.check()
			if !rep.Has(d.want) {
				t.Errorf("%v, %s: want a problem of kind %s; %v\n%v", kind, d.name, d.want, rep.Err(), rep)
			}
		}
	}
}

// A check allows the pages that interrupted splits leave, up to the limits of its configuration.
func TestInterruptedSplitsAreAllowed(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, kind, 5000)
		r.split()
		r.init(r.alloc(0), layout.Header{Lowest: 5, Highest: 7})
		r.alloc(1) // allocated and never written
		r.locks = []check.Lock{{Server: 1, Index: 5, Tag: layout.MakeTag(3, 1), Alive: true}}
		cfg := r.config()
		cfg.Unreachable, cfg.HalfSplits = 1, 1
		rep, err := check.Check(cfg)
		if err != nil || rep.Err() != nil || rep.HalfSplits != 1 || rep.Unreachable != 1 || rep.Unused != 1 || rep.Locked != 1 {
			t.Errorf("%v: %v %v\n%v", kind, err, rep.Err(), rep)
		}
	}
}

// While clients split pages of the tree, a check finds no problem, and counts no key twice or not
// at all.
func TestTreeInUse(t *testing.T) {
	for _, kind := range kinds {
		for seed := range uint64(20) {
			r := newRig(t, kind, 3000)
			rnd := rand.New(rand.NewPCG(seed, 1))
			cfg := r.config()
			cfg.Block, cfg.HalfSplits, cfg.Unreachable = 4096, -1, 0
			splits := 0
			cfg.Read = func(a layout.Addr, b []byte) error {
				if splits < 30 && rnd.IntN(3) == 0 {
					at := r.levels[0][rnd.IntN(len(r.levels[0]))]
					if p := r.page(at); p.CanSplit() {
						var sib layout.Page
						to := r.alloc(rnd.IntN(2))
						halve(p, to, r.bytes(to), &sib)
						splits++
					}
				}
				return r.read(a, b)
			}
			cfg.Ends = []uint64{r.super.Len, r.super.Len}
			rep, err := check.Check(cfg)
			if err != nil || rep.Err() != nil || splits == 0 {
				t.Fatalf("%v, seed %d, %d splits: %v %v", kind, seed, splits, err, rep.Err())
			}
		}
	}
}

// Every flipped bit in a header of a hardened page is found, and no damage makes the checker panic.
func TestRandomDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for _, kind := range kinds {
		for range 300 {
			r := newRig(t, kind, 500)
			level := r.levels[rnd.IntN(len(r.levels))]
			b := r.bytes(level[rnd.IntN(len(level))])
			n := len(b)
			if kind == layout.Hardened && rnd.IntN(2) == 0 {
				n = layout.Line
			}
			b[rnd.IntN(n)] ^= 1 << rnd.IntN(8)
			if rep := r.check(); n == layout.Line && rep.Err() == nil {
				t.Errorf("a flipped bit in a header was overlooked: %v", rep)
			}
		}
	}
}

// Ten million keys are checked in seconds; this test has a tenth of them.
func TestLargeTree(t *testing.T) {
	const n = 1_000_000
	r := newRig(t, layout.Hardened, n)
	began := time.Now()
	rep := r.check()
	if rep.Err() != nil || rep.Content.Keys != n {
		t.Fatal(rep.Err())
	}
	t.Logf("%v in %v, %d reads of %d MiB", rep, time.Since(began), rep.Reads, rep.Bytes>>20)
}

func BenchmarkCheck10M(b *testing.B) {
	r := newRig(b, layout.Hardened, 10_000_000)
	for b.Loop() {
		if rep := r.check(); rep.Err() != nil {
			b.Fatal(rep.Err())
		}
	}
}

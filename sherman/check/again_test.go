package check_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

// tornFor makes the first n READs of the page at a torn.
func tornFor(r *rig, cfg *check.Config, a layout.Addr, n int) {
	read := cfg.Read
	cfg.Read = func(at layout.Addr, b []byte) error {
		err := read(at, b)
		if a.Server() == at.Server() && a.Offset() >= at.Offset() && a.Offset() < at.Offset()+uint64(len(b)) && n > 0 {
			n--
			b[a.Offset()-at.Offset()+8]++ // the front version of a published page
		}
		return err
	}
}

// A page that is torn is read again, up to 20 times after the first READ; then it is a problem.
func TestTornPagesAreReadAgain(t *testing.T) {
	for _, n := range []int{0, 1, 2, 20, 21} {
		r := newRig(t, layout.Published, 1000)
		cfg := r.config()
		tornFor(r, &cfg, r.leaf(), n)
		rep := must(t, cfg)
		again := min(n, 20)
		if n > 20 {
			again = 20 * 2 // the page above names it, and its left neighbour does
			again = max(again-(again-20), 20)
		}
		if rep.Has(check.Torn) != (n > 20) || n <= 20 && (rep.Err() != nil || rep.Again != again) {
			t.Errorf("%d torn READs: %d pages were read again, %v", n, rep.Again, rep.Err())
		}
	}
}

// Visit reads a leaf again while it is torn, and visits none of its records if it stays so.
func TestTornLeavesForVisit(t *testing.T) {
	for _, n := range []int{0, 1, 19, 20} {
		r := newRig(t, layout.Published, 1000)
		cfg := r.config()
		visited, torn := 0, n
		cfg.Visit = func(uint64, []byte) error { visited++; return nil }
		cfg.Read = func(a layout.Addr, b []byte) error {
			err := r.read(a, b)
			if a == r.leaf() && len(b) == r.super.Shape.Page && torn > 0 {
				torn--
				b[8]++
			}
			return err
		}
		rep := must(t, cfg)
		want := 1000
		if n == 20 {
			want -= r.page(r.leaf()).Count()
		}
		if visited != want || rep.Has(check.Torn) != (n == 20) || n == 20 && rep.Problems[0].At != r.leaf() {
			t.Errorf("%d torn READs: %d records visited, want %d; %v", n, visited, want, rep.Err())
		}
	}
}

// What a page looked like before it was read again does not count: neither its problems, nor that
// it was not written yet.
func TestLaterReadsCount(t *testing.T) {
	for name, first := range map[string]func(r *rig, b []byte){
		"zeros": func(_ *rig, b []byte) { clear(b) },
		"another tree": func(r *rig, b []byte) {
			var p layout.Page
			p.Init(r.super.Shape, b, layout.Header{Self: r.inner(), Generation: 5, Lowest: 1, Highest: 2})
		},
	} {
		r := newRig(t, layout.Hardened, 1000)
		page := uint64(r.super.Shape.Page)
		cfg := r.config()
		begun := false
		a := r.leaf()
		cfg.Read = func(at layout.Addr, b []byte) error {
			err := r.read(at, b)
			if !begun && a.Server() == at.Server() && a.Offset() >= at.Offset() && a.Offset() < at.Offset()+uint64(len(b)) {
				begun = true
				off := a.Offset() - at.Offset()
				first(r, b[off:off+page])
			}
			return err
		}
		rep := must(t, cfg)
		if rep.Err() != nil || rep.Unused != 0 || rep.Again != 1 {
			t.Errorf("%s: %+v, %v", name, rep, rep.Err())
		}
	}
}

// Pages that no page names: those of an earlier tree and those that were never written are unused,
// those that are unused free, garbage is nothing, and all others unreachable. A report of too many
// names the first.
func TestPagesOutsideOfTheTree(t *testing.T) {
	r := newRig(t, layout.Hardened, 1000)
	first := r.alloc(0)
	r.init(first, layout.Header{Lowest: 5, Highest: 7})
	for i := range 3 {
		r.init(r.alloc(0), layout.Header{Lowest: 5, Highest: 7 + uint64(i)})
	}
	for range 2 {
		edit(r.init(r.alloc(0), layout.Header{Lowest: 5, Highest: 7})).Retire(0)
	}
	r.alloc(0)
	old := r.alloc(0)
	r.init(old, layout.Header{Lowest: 5, Highest: 7})
	r.change(old, func(h *layout.Header) { h.Generation++ })
	garbage := r.alloc(0)
	r.bytes(garbage)[200] = 1
	r.bytes(garbage)[1] = 1
	for limit, wrong := range map[int]int{-1: 0, 5: 0, 4: 0, 3: 1, 0: 1} {
		cfg := r.config()
		cfg.Unreachable = limit
		rep := must(t, cfg)
		if rep.Unreachable != 4 || rep.Free != 2 || rep.Unused != 2 || rep.HalfSplits != 0 {
			t.Errorf("%+v", rep)
		}
		// Free pages may be a merge in progress, so that the check is repeated.
		if (rep.Wrong > 0) != (wrong > 0) || wrong > 0 && (rep.Problems[0].Kind != check.Lost || rep.Problems[0].At != first) {
			t.Errorf("limit %d: %v", limit, rep.Err())
		}
	}
}

// A report of too many half-done splits names the first page without a separator.
func TestLimitOfHalfSplits(t *testing.T) {
	r := newRig(t, layout.Hardened, 3000)
	var first layout.Addr
	for i, at := range []int{3, 7, 11} {
		to := r.alloc(0)
		if i == 0 {
			first = to
		}
		var sib layout.Page
		halve(r.page(r.levels[0][at]), to, r.bytes(to), &sib)
	}
	for limit, wrong := range map[int]bool{-1: false, 4: false, 3: false, 2: true, 0: true} {
		cfg := r.config()
		cfg.HalfSplits = limit
		rep := must(t, cfg)
		if rep.HalfSplits != 3 || (rep.Wrong > 0) != wrong || wrong && (rep.Problems[0].Kind != check.Unlinked || rep.Problems[0].At != first) {
			t.Errorf("limit %d: %d half-done splits, %v", limit, rep.HalfSplits, rep.Err())
		}
	}
}

// A page that a split has made after its left neighbour was read is found by a second look, also
// behind others of its kind; then it is no unreachable page.
func TestPagesLinkedMeanwhile(t *testing.T) {
	for _, splits := range []int{1, 2, 3} {
		r := newRig(t, layout.Hardened, 3000)
		cfg := r.config()
		cfg.Unreachable, cfg.HalfSplits = 0, -1
		// The old copies of all pages are read first: the pages that splits make are read, their
		// left neighbours were read before.
		old := [][]byte{append([]byte(nil), r.memory[0]...), append([]byte(nil), r.memory[1]...)}
		from := r.leaf()
		made := map[layout.Addr]bool{}
		for range splits {
			to := r.alloc(1)
			made[to] = true
			var sib layout.Page
			halve(r.page(from), to, r.bytes(to), &sib)
		}
		cfg.Ends = []uint64{r.next[0], r.next[1]}
		scanned := 0
		cfg.Block = r.super.Shape.Page
		cfg.Read = func(a layout.Addr, b []byte) error {
			if scanned++; scanned <= r.pages(0)+r.pages(1) && !made[a] {
				copy(b, old[a.Server()][a.Offset():])
				return nil
			}
			return r.read(a, b)
		}
		rep := must(t, cfg)
		if rep.Err() != nil || rep.Unreachable != 0 {
			t.Errorf("%d splits: %d unreachable pages, %v", splits, rep.Unreachable, rep.Err())
		}
	}
}

// Problems are at the page that is wrong.
func TestPlacesOfProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		want check.Kind
		at   func(r *rig) layout.Addr
		do   func(r *rig)
	}{
		{"leaf with no range", check.Gap, (*rig).leaf, func(r *rig) { r.change(r.leaf(), func(h *layout.Header) { h.Highest = h.Lowest }) }},
		{"lowest key twice", check.Duplicate, (*rig).leaf, func(r *rig) {
			p := r.page(r.leaf())
			p.Put(p.FreeSlot(), p.Lowest, value(p.Lowest))
		}},
		{"separator of the lowest key", check.Duplicate, (*rig).inner, func(r *rig) {
			p := r.page(r.inner())
			p.PutChild(p.Lowest, p.Leftmost)
		}},
		{"record below its page", check.OutOfRange, (*rig).leaf, func(r *rig) {
			p := r.page(r.leaf())
			p.Put(p.FreeSlot(), p.Lowest-1, value(1))
		}},
		{"record above its page", check.OutOfRange, (*rig).leaf, func(r *rig) {
			p := r.page(r.leaf())
			p.Put(p.FreeSlot(), p.Highest, value(1))
		}},
	} {
		kind := layout.Published // a hardened page hides records out of its range
		if c.want == check.Duplicate {
			kind = layout.Hardened
		}
		r := newRig(t, kind, 5000)
		c.do(r)
		cfg := r.config()
		cfg.Want = nil
		rep := must(t, cfg)
		if rep.Wrong == 0 || rep.Problems[0].Kind != c.want && !rep.Has(c.want) {
			t.Errorf("%s: %v", c.name, rep.Err())
			continue
		}
		found := false
		for _, p := range rep.Problems {
			found = found || p.Kind == c.want && p.At == c.at(r)
		}
		if !found {
			t.Errorf("%s: want a problem of kind %s at %v; %v", c.name, c.want, c.at(r), rep.Err())
		}
	}
}

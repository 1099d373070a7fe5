package layout

import (
	"bytes"
	"testing"
)

// full returns a hardened page whose records have the keys 10, 20, 30 and so on.
func full(kind Kind, level int, lowest, highest uint64, sibling Addr) *Page {
	s := Shape{Kind: kind, Page: 512, Value: 16}
	p := new(Page)
	p.Init(s, make([]byte, s.Page), Header{Level: level, Lowest: lowest, Highest: highest, Sibling: sibling, Self: 1 << 20, Leftmost: 5 << 16})
	for k := uint64(10); p.FreeSlot() >= 0; k += 10 {
		if level > 0 {
			p.PutChild(k, Addr(k)<<16)
		} else {
			p.Put(p.FreeSlot(), k, []byte{byte(k)})
		}
	}
	return p
}

// At the ends of a level a split leaves the records together that are not near the new one, and
// elsewhere it halves them, and so do pages of the other kinds everywhere.
func TestSplitFor(t *testing.T) {
	const none = Addr(0)
	slots := Shape{Page: 512, Value: 16}.Slots(0) // 14
	last := uint64(10 * slots)
	for _, tc := range []struct {
		name            string
		kind            Kind
		level           int
		lowest, highest uint64
		sibling         Addr
		key             uint64
		sep             uint64
		stay            int
	}{
		{"behind the last key", Hardened, 0, 5, MaxKey, none, last + 1, last + 1, slots},
		{"the greatest key of all", Hardened, 0, 5, MaxKey, none, MaxKey, 80, 7},
		{"before the last key", Hardened, 0, 5, MaxKey, none, last - 1, last, slots - 1},
		{"in the middle of the last page", Hardened, 0, 5, MaxKey, none, 71, 80, 7},
		{"behind the last key of a page", Hardened, 0, 5, 1000, 1 << 21, last + 1, 80, 7},
		{"before the first key", Hardened, 0, 0, 1000, 1 << 21, 1, 10, 0},
		{"behind the first key", Hardened, 0, 0, 1000, 1 << 21, 11, 20, 1},
		{"before the first key of a page", Hardened, 0, 5, 1000, 1 << 21, 6, 80, 7},
		{"published", Published, 0, 5, MaxKey, none, 1000, 0, 0},
		{"checksummed", Checksummed, 0, 5, MaxKey, none, 1000, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, sib := full(tc.kind, tc.level, tc.lowest, tc.highest, tc.sibling), new(Page)
			n := p.Count()
			sep, _ := edit(p).SplitFor(tc.key, Fresh{At: 1 << 22}, make([]byte, 512), sib, nil)
			if tc.kind != Hardened {
				tc.sep, tc.stay = uint64(10*(n/2+1)), n/2
			}
			if sep != tc.sep || p.Highest != sep || sib.Lowest != sep || p.Count() != tc.stay || sib.Count() != n-tc.stay {
				t.Errorf("separator %d, %d of %d records stay; want %d and %d", sep, p.Count(), n, tc.sep, tc.stay)
			}
			for k := uint64(10); k <= uint64(10*n); k += 10 {
				in := p
				if k >= sep {
					in = sib
				}
				if _, v, ok, _ := in.Find(k); !ok || !bytes.HasPrefix(v, []byte{byte(k)}) {
					t.Errorf("key %d is not where it should be", k)
				}
			}
		})
	}
}

// The new page of an internal split has a leftmost child, also at the ends of the level.
func TestSplitForAnInternalPage(t *testing.T) {
	for _, key := range []uint64{1, 100000} {
		p, sib := full(Hardened, 1, 0, MaxKey, 0), new(Page)
		children := map[uint64]Addr{0: p.Child(0)}
		for k := uint64(10); p.Child(k) != p.Child(k-1); k += 10 {
			children[k] = p.Child(k)
		}
		sep, _ := edit(p).SplitFor(key, Fresh{At: 1 << 22}, make([]byte, 512), sib, nil)
		if p.Count() > 0 && sib.Count() > 0 || sib.Leftmost == 0 {
			t.Errorf("key %d: %d and %d records, leftmost child %v", key, p.Count(), sib.Count(), sib.Leftmost)
		}
		for k, want := range children {
			in := p
			if k >= sep {
				in = sib
			}
			if got := in.Child(k); got != want {
				t.Errorf("key %d: child %v, want %v", k, got, want)
			}
		}
	}
}

// No leaf begins at MaxKey, however many records the one on its left could take.
func TestLowCutIsBelowMaxKey(t *testing.T) {
	shape := Shape{Page: 256, Value: 54}
	var p Page
	p.Init(shape, make([]byte, shape.Page), Header{Lowest: 10, Highest: MaxKey, Self: At(0, 1<<12)})
	for i, k := range []uint64{10, 20, MaxKey} {
		p.Put(i, k, make([]byte, shape.Value))
	}
	for free := 1; free <= 3; free++ {
		if cut := edit(&p).LowCut(15, free); cut <= p.Lowest || cut == MaxKey {
			t.Errorf("%d free slots: the cut is at %d", free, cut)
		}
	}
}

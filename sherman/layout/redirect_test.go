package layout

import (
	"slices"
	"testing"
)

// parent is an internal page from key 100 on, with a leftmost child and children at keys 110, 120, ….
func parent(t *testing.T, leftmost Addr, children ...Addr) *Page {
	t.Helper()
	p := new(Page)
	p.Init(Shape{Page: 1024, Value: 8}, make([]byte, 1024), Header{Level: 1, Lowest: 100, Highest: 1000, Leftmost: leftmost})
	for i, a := range children {
		p.PutChild(uint64(110+10*i), a)
	}
	return p
}

// children lists the leftmost child of a page that is read again, and its entries in order.
func children(t *testing.T, p *Page) (list []Addr, keys []uint64) {
	t.Helper()
	var got Page
	if err := got.Parse(p.Shape, p.Bytes); err != nil {
		t.Fatal(err)
	}
	list = append(list, got.Leftmost)
	for _, i := range got.Order(nil) {
		r, _ := got.Slot(int(i))
		list, keys = append(list, r.Child()), append(keys, r.Key)
	}
	return list, keys
}

// Redirect names the page that has taken over instead of the closed one, once for keys in
// succession, and returns a range for each change.
func TestRedirect(t *testing.T) {
	const from, to, x, y = Addr(1 << 20), Addr(2 << 20), Addr(3 << 20), Addr(4 << 20)
	for what, c := range map[string]struct {
		leftmost Addr
		children []Addr
		want     []Addr
		keys     []uint64
		ranges   int
	}{
		"neither":              {x, []Addr{y}, []Addr{x, y}, []uint64{110}, 0},
		"in the middle":        {x, []Addr{from, y}, []Addr{x, to, y}, []uint64{110, 120}, 1},
		"before its successor": {x, []Addr{from, to, y}, []Addr{x, to, y}, []uint64{110, 130}, 2},
		"as the leftmost":      {from, []Addr{y}, []Addr{to, y}, []uint64{110}, 1},
		"leftmost, successor":  {from, []Addr{to, y}, []Addr{to, y}, []uint64{120}, 2},
		"behind its successor": {to, []Addr{from, y}, []Addr{to, y}, []uint64{120}, 1},
		"several times":        {x, []Addr{from, from, y, from}, []Addr{x, to, y, to}, []uint64{110, 130, 140}, 3},
		"done already":         {x, []Addr{to, y}, []Addr{x, to, y}, []uint64{110, 120}, 0},
	} {
		p := parent(t, c.leftmost, c.children...)
		ranges, more := redirect(p, from, to, Range{1, 2})
		list, keys := children(t, p)
		if more || len(ranges)-1 != c.ranges || !slices.Equal(list, c.want) || !slices.Equal(keys, c.keys) {
			t.Errorf("%s: %v at %v, ranges %v, more %v", what, list, keys, ranges, more)
		}
	}
	many := make([]Addr, maxRedirect+8)
	for i := range many {
		many[i] = []Addr{from, x}[i%2]
	}
	p := parent(t, y, slices.Repeat([]Addr{from}, maxRedirect+2)...)
	ranges, more := redirect(p, from, to)
	if !more || len(ranges) != maxRedirect {
		t.Errorf("%d ranges at once, more %v", len(ranges), more)
	}
	ranges, more = redirect(p, from, to)
	if list, _ := children(t, p); more || len(ranges) != 2 || !slices.Equal(list, []Addr{y, to}) {
		t.Errorf("%v, %d ranges, more %v", list, len(ranges), more)
	}
	p = parent(t, y, many...)
	if _, more := redirect(p, from, to); more || slices.Contains(p.addrs(), from) {
		t.Errorf("%v, more %v", p.addrs(), more)
	}
}

func (p *Page) addrs() (list []Addr) {
	for i := range p.Slots() {
		if r, state := p.Slot(i); state == Used {
			list = append(list, r.Child())
		}
	}
	return list
}

// Replace changes the child of an entry or the leftmost one, and nothing for another key.
func TestReplaceChild(t *testing.T) {
	const a, b, c = Addr(1 << 20), Addr(2 << 20), Addr(3 << 20)
	for key, want := range map[uint64][]Addr{100: {c, b}, 110: {a, c}, 105: {a, b}} {
		p := parent(t, a, b)
		e := edit(p)
		e.Replace(key, c)
		ranges := e.Ranges
		if list, keys := children(t, p); !slices.Equal(list, want) || len(keys) != 1 || keys[0] != 110 || (len(ranges) == 1) == (key == 105) {
			t.Errorf("key %d: %v at %v, ranges %v", key, list, keys, ranges)
		}
	}
}

// An internal page takes over the range of the closed one to its left: that one's leftmost child
// becomes its own, and its own an entry. Without a free slot nothing changes.
func TestAbsorbInternal(t *testing.T) {
	left := new(Page)
	left.Init(Shape{Page: 1024, Value: 8}, make([]byte, 1024), Header{Level: 1, Lowest: 50, Highest: 100, Leftmost: 9 << 20, Reach: 60})
	edit(left).Close()
	p := parent(t, 1<<20, 2<<20)
	ranges, ok := absorb(p, left)
	list, keys := children(t, p)
	if !ok || len(ranges) != 2 || ranges[1].Off != 0 || !slices.Equal(list, []Addr{9 << 20, 1 << 20, 2 << 20}) || !slices.Equal(keys, []uint64{100, 110}) {
		t.Errorf("%v: %v at %v, ranges %v", ok, list, keys, ranges)
	}
	if p.Lowest != 50 || p.Reach != 100 || !left.Absorbed(p.Lowest) || left.Absorbed(51) {
		t.Errorf("%+v", p.Header)
	}
	full := parent(t, 1<<20)
	for key := uint64(110); full.FreeSlot() >= 0; key++ {
		full.PutChild(key, 2<<20)
	}
	before := slices.Clone(full.Bytes)
	if ranges, ok := absorb(full, left); ok || len(ranges) != 0 || !slices.Equal(before, full.Bytes) || full.Lowest != 100 {
		t.Errorf("a full page: %v, ranges %v", ok, ranges)
	}
}

// The steps of a page out of the tree, and what may take them.
func TestStagesOfAPage(t *testing.T) {
	good := Header{Lowest: 5, Highest: 9, Sibling: 1 << 20, Self: At(1, 1024), Epoch: epochMask}
	for what, c := range map[string]struct {
		change func(p *Page)
		n      int
		want   bool
	}{
		"as it is":        {func(*Page) {}, 0, true},
		"a record":        {func(*Page) {}, 1, false},
		"the leftmost":    {func(p *Page) { p.Lowest = 0 }, 0, false},
		"the next key":    {func(p *Page) { p.Lowest = 1 }, 0, true},
		"without sibling": {func(p *Page) { p.Sibling = 0 }, 0, false},
		"closed":          {func(p *Page) { edit(p).Close() }, 0, false},
		"unused":          {func(p *Page) { edit(p).Retire(7) }, 0, false},
		"published":       {func(p *Page) { p.Shape.Kind = Published }, 0, false},
	} {
		p := new(Page)
		p.Init(Shape{Page: 512, Value: 8}, make([]byte, 512), good)
		c.change(p)
		if got := p.CanClose(c.n); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	p, got := new(Page), new(Page)
	p.Init(Shape{Page: 512, Value: 8}, make([]byte, 512), good)
	check := func(what string, want Header) {
		t.Helper()
		want.Last = -1
		if err := got.Parse(p.Shape, p.Bytes); err != nil || got.Header != want {
			t.Errorf("%s: %+v, want %+v, %v", what, got.Header, want, err)
		}
	}
	want := good
	edit(p).Bypass(2 << 20)
	want.Sibling = 2 << 20
	check("bypassed", want)
	edit(p).Extend(7)
	edit(p).Extend(6)
	want.Reach = 7
	check("extended", want)
	edit(p).Close()
	want.Stage = Closed
	check("closed", want)
	edit(p).Retire(3 << 20)
	want.Stage, want.Sibling = Unused, 3<<20
	check("unused", want)
	next, _ := good.Self.Next()
	if fresh, ok := p.Renewed(); !ok || fresh != (Fresh{At: next}) {
		t.Errorf("%+v, %v", fresh, ok)
	}
	if Live.String() != "live" || Closed.String() != "closed" || Unused.String() != "unused" || (Unused+1).String() != "unused" {
		t.Error("names of stages")
	}
	var word FreeHead
	for i, at := range []uint64{1 << 20, 0, MinPage} {
		word = word.Then(At(5, at))
		if word.Place() != at || word>>32 != FreeHead(i+1) {
			t.Errorf("change %d: %#x", i+1, uint64(word))
		}
	}
	two := new(Page)
	two.Init(Shape{Page: 512, Value: 8}, make([]byte, 512), Header{Highest: MaxKey})
	for n := range 3 {
		if two.CanSplit() != (n >= 2) {
			t.Errorf("%d records can be split: %v", n, two.CanSplit())
		}
		two.Put(two.FreeSlot(), uint64(n), []byte{1})
	}
}

// The ranges of a split are all that the page's memory needs, also if the split renews the epochs of
// old records, of which it renews refreshMost at a time, before its header.
func TestRangesOfASplit(t *testing.T) {
	for _, s := range shapes() {
		for age, renewed := range map[uint16]int{0: 0, refreshAge - 1: 0, refreshAge: refreshMost} {
			var p, sib Page
			p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey, Self: At(1, 1024)})
			n := fill(t, &p, 10)
			if s.Kind == Hardened {
				p.Epoch += age
				p.putHeader()
			}
			remote := slices.Clone(p.Bytes)
			_, _, ranges := p.Split(Fresh{At: At(4, 16384)}, make([]byte, s.Page), &sib, nil, nil)
			for _, r := range ranges {
				copy(remote[r.Off:r.Off+r.Len], p.Bytes[r.Off:])
			}
			if !slices.Equal(remote[:s.Page-LockLen], p.Bytes[:s.Page-LockLen]) {
				t.Errorf("%v, age %d: the ranges %v are not all that has changed", s, age, ranges)
			}
			renewed = min(renewed, n)
			if s.Kind == Hardened && (len(ranges) != renewed+1 || ranges[renewed] != (Range{0, Line})) {
				t.Errorf("%v, age %d: %v", s, age, ranges)
			}
		}
	}
}

// A sorted page has its records in order in whatever order they come, and no version 0.
func TestSortedPages(t *testing.T) {
	s := Shape{Kind: Checksummed, Page: 512, Value: 8}
	var p, got Page
	p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
	for _, key := range []uint64{5, 1, 9, 3, 7} {
		p.Put(p.FreeSlot(), key, valueOf(&p, key))
	}
	for i, want := range []uint64{1, 3, 5, 7, 9} {
		if r, state := p.Slot(i); state != Used || r.Key != want {
			t.Errorf("record %d has key %d", i, r.Key)
		}
	}
	for i := range 600 {
		was := p.Epoch
		p.Put(0, 1, valueOf(&p, uint64(i)))
		if p.Epoch == 0 || p.Epoch > 255 || p.Epoch != was+1 && (was != 255 || p.Epoch != 1) {
			t.Fatalf("version %d follows %d", p.Epoch, was)
		}
		if err := got.Parse(s, p.Bytes); err != nil {
			t.Fatalf("version %d: %v", p.Epoch, err)
		}
	}
	for slots := p.Count(); slots > 0; slots-- {
		p.Remove(0)
	}
	if err := got.Parse(s, p.Bytes); err != nil || got.Count() != 0 || got.Last != -1 {
		t.Errorf("%+v, %v", got.Header, err)
	}
	next, _ := At(1, 1024).Next()
	if next.String() != "1:0x400+1" {
		t.Error(next)
	}
}

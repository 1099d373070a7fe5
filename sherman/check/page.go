package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// page is what the check remembers of a page.
type page struct {
	addr            layout.Addr
	sibling         layout.Addr
	lowest, highest uint64
	cut             uint64
	reach           uint64
	level           int
	stage           layout.Stage
	content         Content
	// below is the digest of a leaf's keys below its cut.
	below Content
	// children are the children of an internal page, sorted by their lowest keys.
	children []child
	// linked is true if the chain of the page's level contains the page. named is true if a page of
	// the level above, or the root word, names it. absorbed is true if the page is closed and its
	// sibling has taken over its range.
	linked, named, absorbed bool
}

type child struct {
	key  uint64
	addr layout.Addr
}

func (p *page) covers(key uint64) bool {
	return layout.Covers(p.lowest, p.highest, key)
}

// errNothing means that the page was never written.
var errNothing = errors.New("never written")

// parse parses the bytes b of the page at addr. The problems that it returns go into the report
// only if the page is part of the tree.
func (c *checker) parse(addr layout.Addr, b []byte) (*page, []Problem, error) {
	if err := c.buf.Parse(c.Super.Shape, b); err != nil {
		if errors.Is(err, layout.ErrPage) && !slices.ContainsFunc(b[:layout.Line], func(x byte) bool { return x != 0 }) {
			err = errNothing
		}
		return nil, nil, err
	}
	h := &c.buf.Header
	p := &page{addr: addr, sibling: h.Sibling, lowest: h.Lowest, highest: h.Highest, level: h.Level, stage: h.Stage, reach: h.Reach, cut: h.Cut}
	var wrong []Problem
	bad := func(k Kind, format string, args ...any) {
		if n := len(wrong); n > 0 && wrong[n-1].Kind == k {
			return // one problem of each kind
		}
		wrong = append(wrong, Problem{k, addr, fmt.Sprintf(format, args...)})
	}
	if c.Super.Shape.Kind == layout.Hardened && h.Self.Place() == addr {
		p.addr = h.Self
	}
	if c.Super.Shape.Kind == layout.Hardened && (h.Self.Place() != addr.Place() || h.Generation != c.Super.Generation) {
		bad(Misplaced, "the page has the header of %v of tree %#x; this is tree %#x", h.Self, h.Generation, c.Super.Generation)
	}
	if h.Stage == layout.Unused {
		return p, wrong, nil
	}
	if h.Level > 0 {
		p.children = append(p.children, child{h.Lowest, h.Leftmost})
	}
	keys := c.keys[:0]
	for i := range c.buf.Slots() {
		r, state := c.buf.Slot(i)
		if state == layout.Torn {
			return nil, nil, layout.ErrTorn
		}
		if state == layout.Free {
			continue
		}
		if !c.buf.Covers(r.Key) {
			bad(OutOfRange, "key %d is not in the range from %d to %d", r.Key, h.Lowest, h.Highest)
		}
		if h.Level > 0 {
			p.children = append(p.children, child{r.Key, r.Child()})
			continue
		}
		keys = append(keys, r.Key)
		if p.content.Add(r.Key); r.Key < h.Cut {
			p.below.Add(r.Key)
		}
	}
	c.keys = keys
	if h.Level == 0 {
		slices.Sort(keys)
		for i := 1; i < len(keys); i++ {
			if keys[i] == keys[i-1] {
				bad(Duplicate, "key %d occurs twice", keys[i])
			}
		}
		return p, wrong, nil
	}
	byKey := func(a, b child) int { return cmp.Compare(a.key, b.key) }
	rest := p.children[1:]
	if c.Super.Shape.Kind != layout.Hardened && !slices.IsSortedFunc(rest, byKey) {
		bad(Unsorted, "its records are not sorted by key")
	}
	slices.SortStableFunc(rest, byKey)
	for i := 1; i < len(p.children); i++ {
		if p.children[i].key == p.children[i-1].key {
			bad(Duplicate, "separator %d occurs twice", p.children[i].key)
		}
	}
	return p, wrong, nil
}

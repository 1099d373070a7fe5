package check

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// walk follows the chain of each level to the right, level by level from the root down.
func (c *checker) walk() error {
	root, err := c.root()
	if err != nil || root == nil {
		return err
	}
	c.report.Levels = make([]int, root.level+1)
	first := root
	for level := root.level; level >= 0; level-- {
		chain, err := c.chain(first)
		if err != nil {
			return err
		}
		c.report.Levels[level] = len(chain)
		if level == 0 {
			return c.leaves(chain)
		}
		if first, err = c.children(chain); err != nil || first == nil {
			return err
		}
	}
	return nil
}

// root returns the page that the root word names. If there is none, root reports a problem and
// returns nil.
func (c *checker) root() (*page, error) {
	if c.Super.Inside(c.Root) {
		if err := c.rereadEnd(c.Root); err != nil {
			return nil, err
		}
	}
	if !c.allocated(c.Root) {
		c.bad(BadRoot, c.Root, "the root word names no page")
		return nil, nil
	}
	p, err := c.find(c.Root, 0, -1, 0, false)
	if err != nil || p == nil {
		return nil, err
	}
	if p.level > maxLevel {
		c.bad(BadLevel, c.Root, "the root's level is %d; the highest possible is %d", p.level, maxLevel)
		return nil, nil
	}
	p.named = true
	return p, nil
}

// chain returns the pages of a level: p and its siblings up to the right end.
func (c *checker) chain(p *page) (chain []*page, err error) {
	for p != nil {
		if p.linked {
			c.bad(Gap, p.addr, "the chain of its level leads back to it")
			return chain, nil
		}
		p.linked = true
		chain = append(chain, p)
		if p.stage == layout.Closed {
			c.report.Closed++
		}
		for _, f := range c.faults[p.addr.Place()] {
			c.add(f)
		}
		switch {
		case p.lowest >= p.highest:
			c.bad(Gap, p.addr, "its range from %d to %d is empty", p.lowest, p.highest)
			return chain, nil
		case p.sibling == 0 && p.highest != layout.MaxKey:
			c.bad(Gap, p.addr, "the level ends at %d", p.highest)
			return chain, nil
		case p.sibling == 0:
			return chain, nil
		}
		from := p.highest
		q := c.pages[p.sibling.Place()]
		switch {
		case p.stage != layout.Closed || q == nil:
		case p.cut > 0 && q.lowest == p.cut: // the sibling has taken over a part of the range
			from, p.highest, p.content = p.cut, p.cut, p.below
		case p.cut == 0 && q.lowest == p.lowest:
			from = p.lowest // the sibling has taken over the range, with copies of the records
			p.content = Content{}
			p.absorbed = true
		}
		if p, err = c.find(p.sibling, p.addr, p.level, from, false); err != nil {
			return chain, err
		}
	}
	return chain, nil
}

// children checks each child that the pages in chain, those of one level, name. It returns the
// leftmost page of the level below; nil means that this page has a problem, which was reported.
func (c *checker) children(chain []*page) (first *page, err error) {
	for _, p := range chain {
		for i, ch := range p.children {
			below, err := c.find(ch.addr, p.addr, p.level-1, ch.key, true)
			if err != nil {
				return nil, err
			}
			if below == nil {
				continue
			}
			if first == nil && p == chain[0] && i == 0 {
				first = below
			}
			below.named = true
		}
	}
	return first, nil
}

// leaves adds up the contents of the leaves and calls visit for each of them.
func (c *checker) leaves(chain []*page) error {
	for _, p := range chain {
		c.report.Content.Keys += p.content.Keys
		c.report.Content.Sum += p.content.Sum
		c.report.Room += uint64(c.Super.Shape.Slots(0))
		if c.Visit == nil || p.absorbed {
			continue
		}
		if err := c.visit(p); err != nil {
			return err
		}
	}
	return nil
}

// visit reads a leaf again and calls Visit with its records, in the order of their keys.
func (c *checker) visit(p *page) error {
	var pg layout.Page
	for range maxReads {
		if err := c.read(p.addr, c.one); err != nil {
			return err
		}
		if pg.Parse(c.Super.Shape, c.one) != nil {
			continue
		}
		for _, i := range pg.Order(nil) {
			if r, _ := pg.Slot(int(i)); p.covers(r.Key) {
				if err := c.Visit(r.Key, r.Value); err != nil {
					c.bad(Value, p.addr, "key %d: %v", r.Key, err)
				}
			}
		}
		return nil
	}
	c.bad(Torn, p.addr, "it stays torn in repeated READs")
	return nil
}

// rest counts and checks pages that no chain contains, and pages that no separator names.
func (c *checker) rest() error {
	for _, err := range c.unparsed {
		if errors.Is(err, errNothing) {
			c.report.Unused++
		}
	}
	// Free pages are counted even if problems were found: they show Check that a merge, which frees
	// a page, may have caused the problems.
	for _, p := range c.pages {
		if p.stage == layout.Unused && !c.foreign(p) {
			c.report.Free++
		}
	}
	if c.report.Wrong > 0 {
		return nil // a part of the tree was not read, so a page that seems unreachable may be in it
	}
	var stray layout.Addr
	for _, p := range c.sorted(func(p *page) bool { return !p.linked }) {
		if c.foreign(p) {
			c.report.Unused++
			continue
		}
		if p.stage == layout.Unused {
			continue
		}
		if q := c.pages[p.addr.Place()]; q != nil && q.linked {
			continue // secondLook has found the page while it handled another one
		}
		found, err := c.secondLook(p)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		if c.report.Unreachable++; stray == 0 {
			stray = p.addr
		}
	}
	if n := c.report.Unreachable; c.Unreachable >= 0 && n > c.Unreachable {
		c.bad(Lost, stray, "no page names %d pages; interrupted clients may have left %d", n, c.Unreachable)
	}
	stray = 0
	for _, p := range c.sorted(func(p *page) bool { return p.linked && !p.named && p.stage == layout.Live }) {
		if c.report.HalfSplits++; stray == 0 {
			stray = p.addr
		}
	}
	if n := c.report.HalfSplits; c.HalfSplits >= 0 && n > c.HalfSplits {
		c.bad(Unlinked, stray, "%d pages have no separator above them; interrupted splits may have left %d", n, c.HalfSplits)
	}
	return nil
}

// foreign reports whether page p belongs to an earlier tree in the same memory.
func (c *checker) foreign(p *page) bool {
	return slices.ContainsFunc(c.faults[p.addr.Place()], func(f Problem) bool { return f.Kind == Misplaced })
}

// secondLook is called for a page that no chain contains. It reads the left neighbours again, and
// returns true if one of them names p now: a client has linked p since the chain was read.
func (c *checker) secondLook(p *page) (bool, error) {
	if c.report.Unreachable >= maxStrays {
		return false, nil
	}
	left := c.leftOf(p)
	for range maxReads {
		if left == nil {
			return false, nil
		}
		now, err := c.again(left.addr)
		if err != nil {
			return false, err
		}
		if now == nil || now.sibling == 0 || now.lowest >= p.lowest {
			return false, nil
		}
		now.linked, now.named = true, left.named
		if now.sibling == p.addr {
			p.linked = true
			return true, nil
		}
		if left = c.pages[now.sibling.Place()]; left == nil {
			left = &page{addr: now.sibling}
		}
	}
	return false, nil
}

// leftOf returns the page of the same level whose range contained the lowest key of p when the
// chain was read, or nil.
func (c *checker) leftOf(p *page) *page {
	for _, q := range c.pages {
		if q.linked && q.level == p.level && q.covers(p.lowest) {
			return q
		}
	}
	return nil
}

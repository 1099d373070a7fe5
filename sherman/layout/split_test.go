package layout

// Child returns the child for a key in an internal page.
func (p *Page) Child(key uint64) Addr {
	child, _ := p.Separator(key)
	return child
}

// Split is SplitAt with the upper half of the records in the fresh page. It returns the separator.
func (p *Page) Split(to Fresh, b []byte, sib *Page, scratch []uint16, ranges []Range) (sep uint64, _ []uint16, _ []Range) {
	order := p.Order(scratch[:0])
	first, _ := p.Slot(int(order[len(order)/2]))
	e := edit(p, ranges...)
	e.split(order[len(order)/2:], first.Key, to, b, sib)
	return first.Key, order, e.Ranges
}

// edit begins a change of a page, of which some ranges have changed already.
func edit(p *Page, ranges ...Range) *Edit { return &Edit{Page: p, Ranges: ranges} }

// absorb makes p take over the range of left, and returns the ranges that have changed.
func absorb(p, left *Page) (_ []Range, ok bool) {
	e := edit(p)
	ok = e.Absorb(left)
	return e.Ranges, ok
}

// redirect makes pointers of p to a page name another one, and returns the ranges that have changed.
func redirect(p *Page, from, to Addr, ranges ...Range) (_ []Range, more bool) {
	e := edit(p, ranges...)
	more = e.Redirect(from, to)
	return e.Ranges, more
}

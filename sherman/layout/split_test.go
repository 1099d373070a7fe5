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
	return first.Key, order, splitAt(p, order[len(order)/2:], first.Key, to, b, sib, ranges)
}

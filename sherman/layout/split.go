package layout

// edgeShare decides when a split is uneven (see SplitFor). In the last page of a level it is uneven
// if at most 1/edgeShare of the records have greater keys than the new record. In the first page it
// is uneven if at most 1/edgeShare of the records have smaller keys.
const edgeShare = 4

// SplitFor splits the page, to which a record with the given key will be added. It moves the upper
// half of the records to the fresh page `to`. If the level grows at an end of the range of all
// keys, the records that are not near the new one stay together: keys that come in order fill the
// pages that they leave behind (Hardened only).
//
// It builds the fresh page as `sib` in the bytes b. The caller must write b before it writes the
// page. SplitFor returns the separator, which is the lowest key of the fresh page. It uses `scratch`
// for the order of the records and returns it, perhaps grown.
func (e *Edit) SplitFor(key uint64, to Fresh, b []byte, sib *Page, scratch []uint16) (sep uint64, _ []uint16) {
	o := order{e.Page, e.Page.Order(scratch[:0])}
	at, sep := o.splitPoint(key)
	e.split(o.slots[at:], sep, to, b, sib)
	return sep, o.slots
}

// SplitAt splits the leaf, like SplitFor, but with the given separator sep.
func (e *Edit) SplitAt(sep uint64, to Fresh, b []byte, sib *Page) {
	o := order{e.Page, e.Page.Order(nil)}
	e.split(o.slots[o.before(sep):], sep, to, b, sib)
}

// split moves the records in the slots `move`, which are in the order of their keys, to the fresh
// page, which begins at key `sep`. In an internal page, the first of these records becomes the
// leftmost child of the fresh page.
func (e *Edit) split(move []uint16, sep uint64, to Fresh, b []byte, sib *Page) {
	p, leaving := e.Page, move
	h := Header{
		Level: p.Level, Lowest: sep, Highest: p.Highest, Sibling: p.Sibling, Self: to.At, Generation: p.Generation,
		Epoch: to.Epoch, Opened: p.Opened, Refuses: p.Opened,
	}
	if p.Level > 0 {
		first, _ := p.Slot(int(move[0]))
		h.Leftmost = first.Child()
		move = move[1:]
	}
	sib.Init(p.Shape, b, h)
	for i, from := range move {
		r, _ := p.Slot(int(from))
		if p.Level > 0 {
			sib.PutChild(r.Key, r.Child())
		} else {
			sib.Put(i, r.Key, r.Value)
		}
	}
	p.Highest, p.Sibling = sep, to.At
	if p.Shape.Kind != Hardened {
		p.dropPublished(leaving)
		e.Add(p.rewritten())
		return
	}
	e.refresh()
	p.Epoch = (p.Epoch + 1) & epochMask
	e.Add(p.putHeader())
}

// HighCut returns the key from which on the full leaf gives records to its sibling. It chooses the
// key so that half as many records move as the sibling has free slots (free). If the leaf covers
// key, the page that covers key afterwards has a free slot.
func (e *Edit) HighCut(key uint64, free int) uint64 {
	o := order{e.Page, e.Page.Order(nil)}
	if e.Page.Covers(key) && free == 1 && o.before(key) == len(o.slots) {
		return key // the only free slot is for the new record itself
	}
	return o.key(max(1, len(o.slots)-(free+1)/2))
}

// LowCut returns the key below which the full leaf gives its records to its left neighbour. It
// chooses the key so that half as many records move as the neighbour has free slots (free). If the
// leaf covers key, the page that covers key afterwards has a free slot.
func (e *Edit) LowCut(key uint64, free int) uint64 {
	o := order{e.Page, e.Page.Order(nil)}
	n := min((free+1)/2, len(o.slots)-1)
	if e.Page.Covers(key) && free == 1 {
		switch o.before(key) {
		case 0:
			n = 0 // the only free slot is for the new record itself
		case 1:
			return key
		}
	}
	cut := o.key(n)
	if cut == MaxKey && n > 0 {
		cut = o.key(n - 1) // no page begins at MaxKey
	}
	return cut
}

// order has the slots of a page's records, sorted by key.
type order struct {
	page  *Page
	slots []uint16
}

// key returns the key of record i in the order.
func (o order) key(i int) uint64 {
	r, _ := o.page.Slot(int(o.slots[i]))
	return r.Key
}

// before returns how many records have keys below key.
func (o order) before(key uint64) (n int) {
	for i := range o.slots {
		if o.key(i) < key {
			n++
		}
	}
	return n
}

// splitPoint returns how many of the page's records stay in it, and the separator. key is that of
// the record to be added.
func (o order) splitPoint(key uint64) (at int, sep uint64) {
	p, n, below := o.page, len(o.slots), o.before(key)
	switch at = n / 2; {
	case p.Shape.Kind != Hardened:
	case p.Sibling == 0 && below >= n-n/edgeShare, p.Lowest == 0 && below <= n/edgeShare:
		at = below
	}
	if p.Level > 0 && at == n {
		at-- // the new page needs a leftmost child
	}
	for sep = key; ; at = n / 2 {
		if at < n {
			sep = o.key(at)
		}
		if sep != MaxKey || at == n/2 { // no page begins at MaxKey
			return at, sep
		}
	}
}

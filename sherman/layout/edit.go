package layout

import "encoding/binary"

// Edit is a change of a page whose lock the client holds. Its methods change Page, and append to
// Ranges the ranges of the page that must be written, in their order.
type Edit struct {
	Page   *Page
	Ranges []Range
}

// Begin begins a change of page p. It uses the memory of Ranges again.
func (e *Edit) Begin(p *Page) { e.Page, e.Ranges = p, e.Ranges[:0] }

// Add adds a range that a method of Page has changed.
func (e *Edit) Add(r Range) { e.Ranges = append(e.Ranges, r) }

// Close makes the page Closed. The caller has checked it by CanClose or MayMerge.
func (e *Edit) Close() {
	e.Page.Stage = Closed
	e.Add(e.Page.putHeader())
}

// Refuse makes the page refuse to take over the range of `left`, the closed page before it, because
// it has no room for the records.
func (e *Edit) Refuse(left *Page) {
	e.Page.Refuses = !left.Opened
	e.Add(e.Page.putHeader())
}

// Open makes the page Live again. It is Closed, and its sibling has refused to take over its range.
func (e *Edit) Open() {
	p := e.Page
	p.Stage, p.Opened, p.Cut = Live, !p.Opened, 0
	e.Add(p.putHeader())
}

// Cede closes the leaf to give its sibling the range from cut on.
func (e *Edit) Cede(cut uint64) {
	e.Page.Stage, e.Page.Cut = Closed, cut
	e.Add(e.Page.putHeader())
}

// Shrink makes the leaf Live again, whose sibling has taken over its range from the cut on. Readers
// see a split: later records may overwrite the records that have left.
func (e *Edit) Shrink() {
	p := e.Page
	e.refresh()
	p.Stage, p.Highest, p.Cut = Live, p.Cut, 0
	p.Epoch = (p.Epoch + 1) & epochMask
	e.Add(p.putHeader())
}

// Absorb makes the page take over the range of `left`, the closed page before it, with copies of the
// records of `left`. It returns false if the page has too few free slots for the records.
func (e *Edit) Absorb(left *Page) bool {
	p := e.Page
	if p.Level > 0 {
		if p.FreeSlot() < 0 {
			return false
		}
		// A reader that sees the new header without this record goes to a page further to the left,
		// and from there through siblings.
		e.Add(p.PutChild(p.Lowest, p.Leftmost))
		p.Leftmost = left.Leftmost
	} else if !e.adopt(left) {
		return false
	}
	p.Reach = max(p.Reach, p.Lowest)
	if p.Lowest = left.leaving(); left.Cut == 0 {
		p.Reach, p.Refuses = max(p.Reach, left.Reach), left.Refuses
	}
	e.Add(p.putHeader())
	return true
}

// adopt copies the records of the closed leaf `left` into free slots of the page. Readers do not see
// the copies until the header of the page says that the range belongs to it. Another client may have
// copied the records and died before it wrote the header. adopt removes such older copies from slots
// that it does not overwrite. It returns false, and adds no range, if there are too few free slots.
func (e *Edit) adopt(left *Page) bool {
	p := e.Page
	var r Range // from the first to the last slot that changes
	changed := func(piece Range) {
		if r.Len == 0 {
			r = piece
		}
		r.Len = piece.Off + piece.Len - r.Off // the loop visits slots in the order of their offsets
	}
	next, from := 0, left.leaving()
	leaves := func(r Record, state State) bool { return state == Used && r.Key >= from }
	for i := range p.Slots() {
		if _, state := p.Slot(i); state == Used {
			continue
		}
		copied := false
		for ; !copied && next < left.Slots(); next++ {
			r, state := left.Slot(next)
			if copied = leaves(r, state); copied {
				changed(p.putHardenedRecord(i, r.Key, r.Value))
			}
		}
		b, mark := p.hardenedRecord(i)
		if key := binary.LittleEndian.Uint64(b); mark != 0 && !copied && key >= from && left.Covers(key) {
			changed(p.removeHardened(i))
		}
	}
	for ; next < left.Slots(); next++ {
		if leaves(left.Slot(next)) {
			return false
		}
	}
	if r.Len > 0 {
		e.Add(r)
	}
	return true
}

// Bypass replaces the page's sibling, which is closed, by `next`, the sibling of that closed page.
func (e *Edit) Bypass(next Addr) {
	e.Page.Sibling = next
	e.Add(e.Page.putHeader())
}

// Retire makes a closed page Unused. next is the page after it in the list of unused pages.
func (e *Edit) Retire(next Addr) {
	e.Page.Stage, e.Page.Sibling = Unused, next
	e.Add(e.Page.putHeader())
}

// Extend raises the page's Reach to `key`, so that pages above may name the page at this key.
func (e *Edit) Extend(key uint64) {
	e.Page.Reach = max(e.Page.Reach, key)
	e.Add(e.Page.putHeader())
}

// Replace makes the internal page name another child at the key of an existing separator.
func (e *Edit) Replace(key uint64, child Addr) {
	p := e.Page
	if slot, _, ok, _ := p.Find(key); ok {
		e.Add(p.putHardenedRecord(slot, key, AppendAddr(nil, child)))
		return
	}
	if key == p.Lowest {
		p.Leftmost = child
		e.Add(p.putHeader())
	}
}

// Lower sets the key of an internal page's record for a child to a smaller key, because the range
// of the child now begins there. It returns false if the page has no record for the child, or if a
// record for another child has a key between the new key and the old one.
func (e *Edit) Lower(key uint64, child Addr) bool {
	p := e.Page
	for _, i := range p.Order(nil) {
		if r, _ := p.Slot(int(i)); r.Key > key {
			if r.Child() != child {
				return false
			}
			e.Add(p.putHardenedRecord(int(i), key, AppendAddr(nil, child)))
			return true
		}
	}
	return false
}

// maxRedirect is the greatest number of records that one call of Redirect changes.
const maxRedirect = 32

// Redirect works on an internal page: it replaces pointers to the closed child `from` by pointers
// to the page `to`, which has taken over the child's range. Of neighbouring pointers that would all
// name `to`, it keeps only the first. more is true if there are further pointers to replace.
func (e *Edit) Redirect(from, to Addr) (more bool) {
	p, n := e.Page, len(e.Ranges)
	if p.Leftmost == from {
		p.Leftmost = to
		e.Add(p.putHeader())
	}
	before := p.Leftmost
	for _, i := range p.Order(nil) {
		if len(e.Ranges)-n >= maxRedirect {
			return true
		}
		switch r, _ := p.Slot(int(i)); {
		case r.Child() == from && before != to:
			e.Add(p.putHardenedRecord(int(i), r.Key, AppendAddr(nil, to)))
		case r.Child() == from, r.Child() == to && before == to:
			e.Add(p.removeHardened(int(i)))
			continue
		default:
			before = r.Child()
			continue
		}
		before = to
	}
	return false
}

// refresh writes the page's epoch into the marks, the last 2 bytes, of records with old epochs: of
// at most refreshMost records. It is called before the page's epoch is raised.
func (e *Edit) refresh() {
	p, n := e.Page, len(e.Ranges)
	for i := range p.Slots() {
		b, mark := p.hardenedRecord(i)
		if mark != 0 && age(p.Epoch, mark>>6) >= refreshAge && len(e.Ranges)-n < refreshMost {
			binary.LittleEndian.PutUint16(b[len(b)-2:], p.Epoch<<6|mark&lenMask)
			e.Add(Range{p.Shape.slotAt(p.Level, i) + len(b) - 2, 2})
		}
	}
}

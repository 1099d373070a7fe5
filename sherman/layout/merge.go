package layout

import "encoding/binary"

// Stage is the state of a hardened page between its use in the tree and its reuse. A page leaves
// the tree in steps. Each step changes one page under its lock, and takes effect by the WRITE of one
// line:
//
//  1. The page is Closed: its records never change again. A leaf has few of them or none, an
//     internal page only its leftmost child.
//  2. Its sibling takes over its range, with copies of its records (Absorb). The copies are written
//     before the header: until then the closed page has the records of the range.
//  3. The pages above name the sibling instead (Redirect), and so does the left neighbour (Bypass).
//  4. The page is Unused. Its next incarnation has another address.
//
// Because a Closed page does not change, each step needs the lock of one page only, and a client
// that finds a Closed page can do the remaining steps: if it repeats what another client has done in
// part, it writes the same. When the sibling of a Closed page leaves the tree, its left neighbour
// first comes to name the page behind it: so a Closed page whose sibling has left is at step 4. The
// leftmost page of a level is never closed, so that a remembered root, or one that is being
// replaced, always leads to the keys.
//
// A READ of the sibling that began before its new header was written may see that header without
// the copies, if the NIC copies the lines in another order. A reader therefore looks in the sibling
// for keys of the range only by a READ that it begins after a pointer of step 3, or the new header
// itself, has led it there.
type Stage uint8

// Stages.
const (
	Live Stage = iota
	Closed
	// Unused: the page may be in the list of unused pages; Sibling is the next one there.
	Unused
)

var stageNames = [...]string{"live", "closed", "unused"}

// String is the name of the stage.
func (s Stage) String() string { return stageNames[min(s, Unused)] }

// Fresh is a page of memory that no pointer names yet.
type Fresh struct {
	At Addr
	// Epoch is the first epoch of the page; 0: 1. It comes after all epochs of earlier
	// incarnations. If a READ sees lines of two incarnations, it therefore sees records that are
	// younger than the header, and notices that.
	Epoch uint16
}

// Renewed returns the next incarnation of an unused page; false if there is none left.
func (h *Header) Renewed() (Fresh, bool) {
	at, ok := h.Self.Next()
	return Fresh{at, (h.Epoch + 1) & epochMask}, ok
}

// CanClose reports whether the page may leave the tree when it has n records.
func (p *Page) CanClose(n int) bool {
	return p.Shape.Kind == Hardened && p.Stage == Live && n == 0 && p.Lowest > 0 && p.Sibling != 0
}

// Shares of a leaf's slots: a leaf is sparse if it has at most 1/sparseShare of its records; two
// leaves are merged if together they have at most 1/mergedShare.
const (
	sparseShare = 4
	mergedShare = 2
)

// Sparse reports whether a leaf with n records has so few that it should be merged with its sibling
// (see MayMerge).
func (p *Page) Sparse(n int) bool {
	return p.Level == 0 && p.CanClose(0) && n <= max(1, p.Slots()/sparseShare)
}

// MayMerge reports whether the leaf p, if it is sparse, may be Closed so that sib, its sibling, takes
// over its records: sib keeps at least as much room as it has records then, so that it is not split
// soon.
func MayMerge(p, sib *Page) bool {
	return p.Sparse(p.Count()) && sib.Stage == Live && sib.Level == 0 && sib.Lowest == p.Highest &&
		p.Count()+sib.Count() <= (p.Slots()+mergedShare-1)/mergedShare
}

// Close makes the page Closed. CanClose or MayMerge must have returned true.
func (p *Page) Close() Range {
	p.Stage = Closed
	return p.putHeader()
}

// Absorbed reports whether the range of a closed page belongs to its sibling; lowest is the
// sibling's lowest key.
func (h *Header) Absorbed(lowest uint64) bool { return lowest <= h.Lowest }

// Absorb makes this page take over the range of the closed page to its left, and copies of its
// records. It appends the pieces that must be written, in their order. It returns false if the page
// has too few free slots for them.
func (p *Page) Absorb(left *Page, ranges []Range) (_ []Range, ok bool) {
	if p.Level > 0 {
		if p.FreeSlot() < 0 {
			return ranges, false
		}
		// A reader that sees the new header without this record goes to a page further left.
		ranges = append(ranges, p.PutChild(p.Lowest, p.Leftmost))
		p.Leftmost = left.Leftmost
	} else if ranges, ok = adoptRecords(p, left, ranges); !ok {
		return ranges, false
	}
	p.Reach = max(p.Reach, p.Lowest, left.Reach)
	p.Lowest = left.Lowest
	return append(ranges, p.putHeader()), true
}

// adoptRecords copies the records of the closed leaf left into free slots of p. They are out of the
// page's range, so no reader sees them before the header says that the range is the page's. A client
// that died before it wrote the header may have left copies in other slots: these are removed.
func adoptRecords(p, left *Page, ranges []Range) (_ []Range, ok bool) {
	var r Range // from the first to the last slot that changes
	changed := func(piece Range) {
		if r.Len == 0 {
			r = piece
		}
		r.Len = piece.Off + piece.Len - r.Off // slots are visited in the order of their offsets
	}
	next := 0
	for i := range p.Slots() {
		if _, state := p.Slot(i); state == Used {
			continue
		}
		var from Record
		for state := Free; state != Used && next < left.Slots(); next++ {
			from, state = left.Slot(next)
			if state == Used {
				changed(p.putHardenedRecord(i, from.Key, from.Value))
			}
		}
		if b, mark := p.hardenedRecord(i); mark != 0 && from.Value == nil && left.Covers(binary.LittleEndian.Uint64(b)) {
			changed(p.removeHardened(i))
		}
	}
	for ; next < left.Slots(); next++ {
		if _, state := left.Slot(next); state == Used {
			return ranges, false
		}
	}
	if r.Len > 0 {
		ranges = append(ranges, r)
	}
	return ranges, true
}

// Bypass makes next the page's sibling; next is the sibling of its present, closed sibling.
func (p *Page) Bypass(next Addr) Range {
	p.Sibling = next
	return p.putHeader()
}

// Retire makes a closed page Unused; next is the page after it in the list of unused pages.
func (p *Page) Retire(next Addr) Range {
	p.Stage, p.Sibling = Unused, next
	return p.putHeader()
}

// Extend raises the page's Reach to key, so that a parent may name the page at this key.
func Extend(p *Page, key uint64) Range {
	p.Reach = max(p.Reach, key)
	return p.putHeader()
}

// Replace makes an internal page name another child at the key of an existing separator.
func Replace(p *Page, key uint64, child Addr, ranges []Range) []Range {
	if slot, _, ok, _ := p.Find(key); ok {
		return append(ranges, p.putHardenedRecord(slot, key, AppendAddr(nil, child)))
	}
	if key == p.Lowest {
		p.Leftmost = child
		return append(ranges, p.putHeader())
	}
	return ranges
}

// maxRedirect bounds the pieces that one call of Redirect changes.
const maxRedirect = 32

// Redirect replaces the pointers of an internal page to the closed child from by pointers to to,
// the page that has taken over its range. It removes records that are not needed any more, and
// appends the pieces that must be written. more reports that there are further pointers to replace.
func (p *Page) Redirect(from, to Addr, ranges []Range) (_ []Range, more bool) {
	n := len(ranges)
	if p.Leftmost == from {
		p.Leftmost = to
		ranges = append(ranges, p.putHeader())
	}
	before := p.Leftmost
	for _, i := range p.Order(nil) {
		if len(ranges)-n >= maxRedirect {
			return ranges, true
		}
		switch r, _ := p.Slot(int(i)); {
		case r.Child() == from && before != to:
			ranges = append(ranges, p.putHardenedRecord(int(i), r.Key, AppendAddr(nil, to)))
		case r.Child() == from, r.Child() == to && before == to:
			ranges = append(ranges, p.removeHardened(int(i)))
			continue
		default:
			before = r.Child()
			continue
		}
		before = to
	}
	return ranges, false
}

// FreeHead is the word at FreeWord: the first unused page of a server, and a number that each
// change of the list increments, so that a compare-and-swap sees any change.
//
//	bits  0 to 31  offset of the page in units of MinPage; 0: the list is empty
//	bits 32 to 63  number of the change
type FreeHead uint64

// Place is the offset of the first page; 0: there is none.
func (h FreeHead) Place() uint64 { return uint64(uint32(h)) * MinPage }

// Then is the value of the word after a change that makes the page a the first of the list.
func (h FreeHead) Then(a Addr) FreeHead {
	return h>>32<<32 + 1<<32 | FreeHead(a.Offset()/MinPage)
}

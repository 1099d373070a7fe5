package layout

import "encoding/binary"

// Stage is the state of a hardened page between its use in the tree and its reuse. A page leaves
// the tree in steps. Each step changes one page under its lock, and takes effect when one line is
// written:
//
//  1. The page becomes Closed: its records do not change. A leaf then has few records or none,
//     an internal page only its leftmost child.
//  2. The page's sibling takes over its range, with copies of its records (Absorb). The copies are
//     written before the sibling's header. Until then the closed page has the records of the range.
//  3. The pages above come to name the sibling instead (Redirect), and so does the left neighbour
//     (Bypass).
//  4. The page becomes Unused. Its next incarnation has another address.
//
// Because a Closed page does not change, each step needs the lock of one page only. A client that
// finds a Closed page can do the remaining steps. If it repeats a step that another client has done
// in part, it writes the same bytes. Before a page leaves the tree, its left neighbour comes to
// name its right neighbour. So if a Closed page still names a sibling that has left the tree, the
// Closed page was not the sibling's left neighbour any more, and is at step 4. The leftmost page of
// a level is never closed, so a remembered root, or a root that is being replaced, always leads to
// the keys.
//
// If the sibling has no room for the records, the page becomes Live again, in two steps. First the
// sibling refuses the range (Refuse); it cannot take that back while the page is Closed. Then the
// page is opened (Open). So one WRITE to the sibling decides between step 2 and the refusal, and
// every client that finds the page sees the decision.
//
// A full leaf gives some of its records away in the same manner (Cede). Its Cut is the key from
// which on the sibling takes over the range. Then the page becomes Live again, and ends at the cut
// (Shrink). Until then no record of the page changes, not even below the cut.
//
// A NIC may copy the lines of a page in any order. So a READ of the sibling that began before its
// new header was written may see that header without the copies. Therefore a reader does not look
// for keys of the taken-over range in every READ of the sibling. It first needs a pointer that
// names the sibling for these keys (step 3), or the new header of the sibling. Then it begins a
// READ of the sibling.
type Stage uint8

// Stages.
const (
	Live Stage = iota
	Closed
	// Unused means that the page has left the tree, and may be in a list of unused pages. Then
	// Sibling is the next page in the list.
	Unused
)

var stageNames = [...]string{"live", "closed", "unused"}

func (s Stage) String() string { return stageNames[min(s, Unused)] }

// Fresh is the memory of a page that no pointer names yet.
type Fresh struct {
	At Addr
	// Epoch is the first epoch of the page; 0 means 1. It is later than all epochs of the page's
	// earlier incarnations. So if a READ sees the header of an earlier incarnation and records of
	// the new one, the reader notices that the records are younger than the header.
	Epoch uint16
}

// Renewed returns the next incarnation of an unused page. It returns false if there is none left.
func (h *Header) Renewed() (Fresh, bool) {
	at, ok := h.Self.Next()
	return Fresh{at, (h.Epoch + 1) & epochMask}, ok
}

// CanClose reports whether the page may leave the tree when n records are left in it: n must be 0,
// and the page neither the first nor the last of its level (Hardened only).
func (p *Page) CanClose(n int) bool {
	return p.Shape.Kind == Hardened && p.Stage == Live && n == 0 && p.Lowest > 0 && p.Sibling != 0
}

// Shares of a leaf's slots. A leaf is sparse if at most 1/sparseShare of its slots are used. Two
// leaves may be merged if together they have at most as many records as 1/mergedShare of the slots
// of one leaf.
const (
	sparseShare = 4
	mergedShare = 2
)

// Sparse reports whether the leaf p, which has n records, should be merged with its sibling (see
// MayMerge): n is small (see sparseShare) or 1, and the leaf may leave the tree when it is empty
// (CanClose).
func (p *Page) Sparse(n int) bool {
	return p.Level == 0 && p.CanClose(0) && n <= max(1, p.Slots()/sparseShare)
}

// MayMerge reports whether the leaf p is sparse and its sibling sib may take over its records. Half
// of the slots of sib must remain free, so that it is not split soon.
func MayMerge(p, sib *Page) bool {
	return p.Sparse(p.Count()) && sib.Stage == Live && sib.Level == 0 && sib.Lowest == p.Highest &&
		p.Count()+sib.Count() <= (p.Slots()+mergedShare-1)/mergedShare
}

// Close makes the page Closed. The caller has checked it by CanClose or MayMerge.
func (p *Page) Close() Range {
	p.Stage = Closed
	return p.putHeader()
}

// Absorbed reports whether the sibling of a closed page has taken over the page's range or, if
// h.Cut is not 0, the part of it from h.Cut on. lowest is the sibling's lowest key.
func (h *Header) Absorbed(lowest uint64) bool { return lowest <= h.leaving() }

// leaving returns the key from which on the sibling of a closed page takes over the page's range.
func (h *Header) leaving() uint64 { return max(h.Lowest, h.Cut) }

// RefusedBy reports whether right, the sibling of the closed page h, has refused to take over the
// range of h.
func (h *Header) RefusedBy(right *Header) bool {
	return right.Lowest == h.Highest && right.Refuses != h.Opened
}

// Refuse makes page p refuse to take over the range of `left`, the closed page before it, because p
// has no room for the records.
func Refuse(p, left *Page) Range {
	p.Refuses = !left.Opened
	return p.putHeader()
}

// Open makes page p Live again. Page p is Closed, and its sibling has refused to take over its
// range.
func Open(p *Page) Range {
	p.Stage, p.Opened, p.Cut = Live, !p.Opened, 0
	return p.putHeader()
}

// Cede closes the leaf p to give its sibling the range from cut on.
func Cede(p *Page, cut uint64) Range {
	p.Stage, p.Cut = Closed, cut
	return p.putHeader()
}

// HighCut returns the key from which on the full leaf p gives records to its sibling. It chooses
// the key so that half as many records move as the sibling has free slots (free). If p covers key,
// the page that covers key afterwards has a free slot.
func HighCut(p *Page, key uint64, free int) uint64 {
	order := p.Order(nil)
	if p.Covers(key) && free == 1 && before(p, key, order) == len(order) {
		return key // the only free slot is for the new record itself
	}
	r, _ := p.Slot(int(order[max(1, len(order)-(free+1)/2)]))
	return r.Key
}

// LowCut returns the key below which the full leaf p gives its records to its left neighbour. It
// chooses the key so that half as many records move as the neighbour has free slots (free). If p
// covers key, the page that covers key afterwards has a free slot.
func LowCut(p *Page, key uint64, free int) uint64 {
	order := p.Order(nil)
	n := min((free+1)/2, len(order)-1)
	if p.Covers(key) && free == 1 {
		switch before(p, key, order) {
		case 0:
			n = 0 // the only free slot is for the new record itself
		case 1:
			return key
		}
	}
	r, _ := p.Slot(int(order[n]))
	if r.Key == MaxKey && n > 0 {
		r, _ = p.Slot(int(order[n-1])) // no page begins at MaxKey
	}
	return r.Key
}

// Shrink makes the leaf p Live again, whose sibling has taken over its range from the cut on. It
// appends the ranges that must be written, in their order. Readers see a split: later records may
// overwrite the records that have left.
func Shrink(p *Page, ranges []Range) []Range {
	ranges = p.refresh(ranges)
	p.Stage, p.Highest, p.Cut = Live, p.Cut, 0
	p.Epoch = (p.Epoch + 1) & epochMask
	return append(ranges, p.putHeader())
}

// Absorb makes page p take over the range of `left`, the closed page before it, with copies of the
// records of `left`. It appends the ranges of p that must be written, in their order. It returns
// false if p has too few free slots for the records.
func (p *Page) Absorb(left *Page, ranges []Range) (_ []Range, ok bool) {
	if p.Level > 0 {
		if p.FreeSlot() < 0 {
			return ranges, false
		}
		// A reader that sees the new header without this record goes to a page further to the left,
		// and from there through siblings.
		ranges = append(ranges, p.PutChild(p.Lowest, p.Leftmost))
		p.Leftmost = left.Leftmost
	} else if ranges, ok = adoptRecords(p, left, ranges); !ok {
		return ranges, false
	}
	p.Reach = max(p.Reach, p.Lowest)
	if p.Lowest = left.leaving(); left.Cut == 0 {
		p.Reach, p.Refuses = max(p.Reach, left.Reach), left.Refuses
	}
	return append(ranges, p.putHeader()), true
}

// adoptRecords copies the records of the closed leaf `left` into free slots of p. Readers do not
// see the copies until the header of p says that the range belongs to p. Another client may have
// copied the records and died before it wrote the header. adoptRecords removes such older copies
// from slots that it does not overwrite.
func adoptRecords(p, left *Page, ranges []Range) (_ []Range, ok bool) {
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
			return ranges, false
		}
	}
	if r.Len > 0 {
		ranges = append(ranges, r)
	}
	return ranges, true
}

// Bypass replaces the page's sibling, which is closed, by `next`, the sibling of that closed page.
func (p *Page) Bypass(next Addr) Range {
	p.Sibling = next
	return p.putHeader()
}

// Retire makes a closed page Unused. next is the page after it in the list of unused pages.
func (p *Page) Retire(next Addr) Range {
	p.Stage, p.Sibling = Unused, next
	return p.putHeader()
}

// Extend raises the page's Reach to `key`, so that pages above may name the page at this key.
func Extend(p *Page, key uint64) Range {
	p.Reach = max(p.Reach, key)
	return p.putHeader()
}

// Replace makes the internal page p name another child at the key of an existing separator. It
// appends the range that must be written.
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

// Lower sets the key of an internal page's record for a child to a smaller key, because the range
// of the child now begins there. It returns false if the page has no record for the child, or if a
// record for another child has a key between the new key and the old one. Lower appends to ranges
// the range that must be written.
func Lower(p *Page, key uint64, child Addr, ranges []Range) (_ []Range, ok bool) {
	for _, i := range p.Order(nil) {
		if r, _ := p.Slot(int(i)); r.Key > key {
			if r.Child() != child {
				return ranges, false
			}
			return append(ranges, p.putHardenedRecord(int(i), key, AppendAddr(nil, child))), true
		}
	}
	return ranges, false
}

// maxRedirect is the greatest number of records that one call of Redirect changes.
const maxRedirect = 32

// Redirect works on an internal page: it replaces pointers to the closed child `from` by pointers
// to the page `to`, which has taken over the child's range. Of neighbouring pointers that would all
// name `to`, it keeps only the first. It appends the ranges that must be written. more is true if
// there are further pointers to replace.
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

// FreeHead is the word at FreeWord. It names the first page in a server's list of unused pages. A
// number in the word grows with each change of the list, so that a compare-and-swap notices any
// change.
//
//	bits  0 to 31  offset of the page in units of MinPage; 0 means that the list is empty
//	bits 32 to 63  number of the change
type FreeHead uint64

// Place returns the offset of the first page, or 0 if the list is empty.
func (h FreeHead) Place() uint64 { return uint64(uint32(h)) * MinPage }

// Then returns the value of the word after a change of the list that makes the page at address a
// the first one. Address 0 means that the list is empty then.
func (h FreeHead) Then(a Addr) FreeHead {
	return h>>32<<32 + 1<<32 | FreeHead(a.Offset()/MinPage)
}

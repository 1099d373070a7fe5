package layout

// Stage is the state of a hardened page between its use in the tree and its reuse. A page leaves
// the tree in steps. Each step changes one page under its lock, and takes effect when one line is
// written:
//
//  1. The page becomes Closed: its records do not change. A leaf then has few records or none,
//     an internal page only its leftmost child.
//  2. The page's sibling takes over its range, with copies of its records (Edit.Absorb). The copies are
//     written before the sibling's header. Until then the closed page has the records of the range.
//  3. The pages above come to name the sibling instead (Edit.Redirect), and so does the left neighbour
//     (Edit.Bypass).
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
// sibling refuses the range (Edit.Refuse); it cannot take that back while the page is Closed. Then the
// page is opened (Edit.Open). So one WRITE to the sibling decides between step 2 and the refusal, and
// every client that finds the page sees the decision.
//
// A full leaf gives some of its records away in the same manner (Edit.Cede). Its Cut is the key from
// which on the sibling takes over the range. Then the page becomes Live again, and ends at the cut
// (Edit.Shrink). Until then no record of the page changes, not even below the cut.
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
func (p *Page) MayMerge(sib *Page) bool {
	return p.Sparse(p.Count()) && sib.Stage == Live && sib.Level == 0 && sib.Lowest == p.Highest &&
		p.Count()+sib.Count() <= (p.Slots()+mergedShare-1)/mergedShare
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

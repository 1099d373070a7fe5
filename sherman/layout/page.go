package layout

import (
	"encoding/binary"
	"math"
)

// Header holds the fields of a page other than its records.
type Header struct {
	// Level is 0 for leaves.
	Level int
	// Stage says whether the page is in use, leaving the tree or unused (Hardened only).
	Stage Stage
	// Lowest and Highest are the ends of the page's range. The page has the keys from Lowest to
	// below Highest, where its sibling begins. In the last page Highest is MaxKey, and the page has
	// that key, too.
	Lowest, Highest uint64
	// Sibling is the page to the right; zero if there is none. Leftmost is the first child of an
	// internal page.
	Sibling, Leftmost Addr
	// Reach, if it is above Lowest, is the greatest key at which a page of the level above may name
	// this page.
	// When this page takes over the range of another page, pointers to that page become pointers to
	// this one (Hardened only).
	Reach uint64
	// Opened flips each time this page, after it was Closed, becomes Live again because its sibling
	// has refused to take over its range. Refuses is compared with Opened of the page to the left:
	// if they differ, this page refuses to take over the range of that page (see RefusedBy;
	// Hardened only).
	Opened, Refuses bool
	// Cut, in a Closed leaf, is the key from which on records leave the page; the others stay. 0
	// means that all records leave (Hardened only).
	Cut uint64
	// Self is the page's address. Generation is Superblock.Generation of the tree (Hardened only).
	Self       Addr
	Generation uint64
	// Epoch counts the splits of a hardened page. In the other kinds it is the version of the whole
	// page.
	Epoch uint16
	// Last is the index of the last record of a page with sorted records, or -1 if it has none (not
	// Hardened).
	Last int
}

func (h *Header) Covers(key uint64) bool { return Covers(h.Lowest, h.Highest, key) }

// Covers reports whether a key is in the range of a page that has the keys from lowest to below
// highest. The last page of a level, whose highest is MaxKey, has the key MaxKey, too.
func Covers(lowest, highest, key uint64) bool {
	return key >= lowest && (key < highest || highest == MaxKey)
}

// Page is a page in local memory. The methods that change it return the range of bytes that must be
// written to remote memory.
type Page struct {
	Shape Shape
	Header
	Bytes []byte
}

// Range is a part of a page, in bytes.
type Range struct{ Off, Len int }

type State uint8

// States of a slot.
const (
	// Free means that the slot has no record, or one that a split has moved to another page.
	Free State = iota
	Used
	// Torn means that the two versions of the record differ, because the record is being written
	// (Published only).
	Torn
)

// Record is one record. Value points into the page.
type Record struct {
	Key   uint64
	Value []byte
}

// Child returns the address in a record of an internal page.
func (r Record) Child() Addr {
	if len(r.Value) < addrLen {
		return 0
	}
	return Addr(binary.LittleEndian.Uint64(r.Value))
}

// Parse parses b, which p then refers to. It returns ErrPage if b is not a page of this shape, and
// ErrTorn if the page was written while it was being read.
func (p *Page) Parse(s Shape, b []byte) error {
	*p = Page{Shape: s, Bytes: b}
	if len(b) != s.Page {
		return ErrPage
	}
	if s.Kind != Hardened {
		return p.parsePublished()
	}
	return p.parseHardened()
}

// Init makes b an empty page with header h. Epoch 0 in h stands for 1.
//
// In a hardened page with a later epoch, all slots get marks of that epoch. They protect a reader
// whose READ sees the header of an earlier incarnation and some of these slots: the reader notices
// that the slots are younger than the header, and does not conclude that records of the earlier
// incarnation are absent.
func (p *Page) Init(s Shape, b []byte, h Header) {
	clear(b)
	h.Epoch, h.Last = max(h.Epoch&epochMask, 1), -1
	*p = Page{Shape: s, Header: h, Bytes: b}
	p.putHeader()
	if s.Kind != Hardened || p.Epoch == 1 {
		return
	}
	for i := range p.Slots() {
		p.removeHardened(i)
	}
}

// putHeader writes the header into the page's bytes and returns the range that it has changed.
func (p *Page) putHeader() Range {
	if p.Shape.Kind != Hardened {
		return p.putPublished()
	}
	return p.putHardened()
}

// Slots returns how many records the page can hold.
func (p *Page) Slots() int { return p.Shape.Slots(p.Level) }

// Slot returns the record in slot i, and the state of the slot.
func (p *Page) Slot(i int) (Record, State) {
	if p.Shape.Kind != Hardened {
		return p.publishedSlot(i)
	}
	return p.hardenedSlot(i)
}

// Find returns the slot and the value of the record with a key; ok is false if there is none. The
// error ErrTorn means that a record that may have the key is being written.
func (p *Page) Find(key uint64) (slot int, value []byte, ok bool, err error) {
	for i := range p.Slots() {
		switch r, state := p.Slot(i); {
		case state == Torn:
			err = ErrTorn
		case state == Used && r.Key == key:
			return i, r.Value, true, nil
		}
	}
	return -1, nil, false, err
}

// Separator returns the child for a key in an internal page, and the key of the entry that names
// it.
func (p *Page) Separator(key uint64) (child Addr, at uint64) {
	child, at = p.Leftmost, p.Lowest
	found := false
	for i := range p.Slots() {
		if r, state := p.Slot(i); state == Used && r.Key <= key && (!found || r.Key > at) {
			child, at, found = r.Child(), r.Key, true
		}
	}
	return child, at
}

// Count returns how many slots are used.
func (p *Page) Count() int {
	n := 0
	for i := range p.Slots() {
		if _, state := p.Slot(i); state == Used {
			n++
		}
	}
	return n
}

// FreeSlot returns a slot for another record, or -1 if the page is full.
func (p *Page) FreeSlot() int {
	if p.Shape.sorted(p.Level) {
		if p.Last+1 < p.Slots() {
			return p.Last + 1
		}
		return -1
	}
	for i := range p.Slots() {
		if _, state := p.Slot(i); state == Free {
			return i
		}
	}
	return -1
}

// Put writes a record of a leaf into a slot. The value must fit.
func (p *Page) Put(slot int, key uint64, value []byte) Range {
	switch {
	case p.Shape.Kind == Hardened:
		return p.putHardenedRecord(slot, key, value)
	case !p.Shape.sorted(p.Level):
		return p.putPublishedRecord(slot, key, value)
	case slot > p.Last:
		return p.insertSorted(key, value)
	}
	return p.replaceSorted(slot, key, value)
}

// Remove empties a slot of a leaf.
func (p *Page) Remove(slot int) Range {
	switch {
	case p.Shape.Kind == Hardened:
		return p.removeHardened(slot)
	case p.Shape.sorted(p.Level):
		return p.removeSorted(slot)
	}
	r, _ := p.publishedSlot(slot)
	return p.putPublishedRecord(slot, r.Key, nil)
}

// PutChild adds a child to an internal page that is not full. key is the lowest key of the child.
func (p *Page) PutChild(key uint64, child Addr) Range {
	var b [addrLen]byte
	if p.Shape.Kind != Hardened {
		return p.insertSorted(key, AppendAddr(b[:0], child))
	}
	return p.putHardenedRecord(p.FreeSlot(), key, AppendAddr(b[:0], child))
}

// AppendAddr appends an address as records store it.
func AppendAddr(b []byte, a Addr) []byte { return binary.LittleEndian.AppendUint64(b, uint64(a)) }

// minSplit is the smallest number of records with which a page can be split.
const minSplit = 2

// CanSplit reports whether there are enough records to split the page.
func (p *Page) CanSplit() bool { return p.Count() >= minSplit }

// Order appends the indices of the used slots to dst, sorted by key.
func (p *Page) Order(dst []uint16) []uint16 {
	for i := range p.Slots() {
		r, state := p.Slot(i)
		if state != Used {
			continue
		}
		dst = append(dst, uint16(i))
		j := len(dst) - 1
		for ; j > 0; j-- { // insertion sort: pages are small
			if before, _ := p.Slot(int(dst[j-1])); before.Key <= r.Key {
				break
			}
			dst[j] = dst[j-1]
		}
		dst[j] = uint16(i)
	}
	return dst
}

const _ = uint16(MaxPage / 16 & math.MaxUint16) // slot indices have 16 bits

// End is called when a bulk load has filled a page. It sets the upper end of the page's range and
// the sibling that begins there.
func (p *Page) End(highest uint64, sibling Addr) {
	p.Highest, p.Sibling = highest, sibling
	p.putHeader()
}

// Lead sets the leftmost child of an internal page during a bulk load.
func (p *Page) Lead(child Addr) {
	p.Leftmost = child
	p.putHeader()
}

package layout

import (
	"encoding/binary"
	"math"
)

// Header is what a page says of itself.
type Header struct {
	// Level is 0 for leaves.
	Level int
	// Lowest and Highest bound the keys: Highest is the first that is not here, but MaxKey belongs to the last page.
	Lowest, Highest uint64
	// Sibling is the page to the right; zero if there is none. Leftmost is the first child of an internal page.
	Sibling, Leftmost Addr
	// Self and Generation are the page's address and the tree's number (Sound only).
	Self       Addr
	Generation uint64
	// Epoch counts the page's splits (Sound); it is the version of the whole page in Faithful.
	Epoch uint16
	// Last is the index of the last record of an internal page, -1 if there is none (Faithful only).
	Last int
}

// Covers reports whether a key is in the page's range.
func (h *Header) Covers(key uint64) bool {
	return key >= h.Lowest && (key < h.Highest || h.Highest == MaxKey)
}

// Page is a page in local memory. Its methods that change it say which bytes must be written.
type Page struct {
	Shape Shape
	Header
	// Bytes are the whole page.
	Bytes []byte
}

// Range is a piece of a page.
type Range struct{ Off, Len int }

// State is what is in a slot.
type State uint8

// States of a slot.
const (
	// Free: nothing, or a record that a split has left behind.
	Free State = iota
	Used
	// Torn: the versions of a record differ (Faithful).
	Torn
)

// Record is one record. Value points into the page.
type Record struct {
	Key   uint64
	Value []byte
}

// Child is the value of an internal record; none if it is of a leaf.
func (r Record) Child() Addr {
	if len(r.Value) < addrLen {
		return 0
	}
	return Addr(binary.LittleEndian.Uint64(r.Value))
}

// Parse reads a page. ErrPage says that the bytes are no page of this shape, ErrTorn that it was written meanwhile. The page keeps b.
func (p *Page) Parse(s Shape, b []byte) error {
	*p = Page{Shape: s, Bytes: b}
	if len(b) != s.Page {
		return ErrPage
	}
	if s.Kind == Faithful {
		return p.parseFaithful()
	}
	return p.parseSound()
}

// Init makes b an empty page.
func (p *Page) Init(s Shape, b []byte, h Header) {
	clear(b)
	h.Epoch, h.Last = 1, -1
	*p = Page{Shape: s, Header: h, Bytes: b}
	p.putHeader()
}

// putHeader writes the header and returns where it is.
func (p *Page) putHeader() Range {
	if p.Shape.Kind == Faithful {
		return p.putFaithful()
	}
	return p.putSound()
}

// Slots is how many records the page can hold.
func (p *Page) Slots() int { return p.Shape.Slots(p.Level) }

// Slot reads slot i.
func (p *Page) Slot(i int) (Record, State) {
	if p.Shape.Kind == Faithful {
		return p.faithfulSlot(i)
	}
	return p.soundSlot(i)
}

// Find looks for the record with a key; ok is false if there is none. ErrTorn says that one that may be it is being written.
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

// Child is the child of an internal page that leads to a key.
func (p *Page) Child(key uint64) Addr {
	best, child, found := uint64(0), p.Leftmost, false
	for i := range p.Slots() {
		if r, state := p.Slot(i); state == Used && r.Key <= key && (!found || r.Key > best) {
			best, child, found = r.Key, r.Child(), true
		}
	}
	return child
}

// Count is how many slots are used.
func (p *Page) Count() int {
	n := 0
	for i := range p.Slots() {
		if _, state := p.Slot(i); state == Used {
			n++
		}
	}
	return n
}

// FreeSlot is a slot for another record; -1 if the page is full.
func (p *Page) FreeSlot() int {
	if p.Shape.Kind == Faithful && p.Level > 0 {
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
	if p.Shape.Kind == Faithful {
		return p.putFaithfulRecord(slot, key, value)
	}
	return p.putSoundRecord(slot, key, value)
}

// Remove empties a slot of a leaf.
func (p *Page) Remove(slot int) Range {
	if p.Shape.Kind == Faithful {
		r, _ := p.faithfulSlot(slot)
		return p.putFaithfulRecord(slot, r.Key, nil)
	}
	return p.removeSound(slot)
}

// PutChild adds a child to an internal page that is not full; key is the lowest of the child.
func (p *Page) PutChild(key uint64, child Addr) Range {
	if p.Shape.Kind == Faithful {
		return p.insertFaithful(key, child)
	}
	var b [addrLen]byte
	binary.LittleEndian.PutUint64(b[:], uint64(child))
	return p.putSoundRecord(p.FreeSlot(), key, b[:])
}

// MinChildren is the fewest records of an internal page that can be split.
const minSplit = 2

// CanSplit reports whether there are enough records to split the page.
func (p *Page) CanSplit() bool { return p.Count() >= minSplit }

// Split moves the upper half of the records to a fresh page at address at, whose bytes are in b and must be written before this
// page's. It returns the separator, which is the lowest key of the new page, and adds to ranges what must be written of this page, in this
// order. scratch is memory for the order of the records, which it may grow.
func (p *Page) Split(at Addr, b []byte, sib *Page, scratch []uint16, ranges []Range) (sep uint64, _ []uint16, _ []Range) {
	order := p.Order(scratch[:0])
	mid := len(order) / 2
	first, _ := p.Slot(int(order[mid]))
	sep = first.Key
	h := Header{
		Level: p.Level, Lowest: sep, Highest: p.Highest, Sibling: p.Sibling, Self: at, Generation: p.Generation,
	}
	move := order[mid:]
	if p.Level > 0 {
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
	p.Highest, p.Sibling = sep, at
	if p.Shape.Kind == Faithful {
		p.dropFaithful(order[mid:])
		return sep, order, append(ranges, p.rewritten())
	}
	ranges = p.refresh(ranges)
	p.Epoch = (p.Epoch + 1) & epochMask
	return sep, order, append(ranges, p.putHeader())
}

// Order appends the numbers of the used slots to dst, by their keys.
func (p *Page) Order(dst []uint16) []uint16 {
	for i := range p.Slots() {
		r, state := p.Slot(i)
		if state != Used {
			continue
		}
		dst = append(dst, uint16(i))
		j := len(dst) - 1
		for ; j > 0; j-- { // pages are small
			if before, _ := p.Slot(int(dst[j-1])); before.Key <= r.Key {
				break
			}
			dst[j] = dst[j-1]
		}
		dst[j] = uint16(i)
	}
	return dst
}

// whole is all of a page.
func (p *Page) whole() Range { return Range{0, len(p.Bytes)} }

const _ = uint16(MaxPage / 16 & math.MaxUint16) // slots have numbers of 16 bits

// End ends a page that is being made at a key, which its sibling covers.
func (p *Page) End(highest uint64, sibling Addr) {
	p.Highest, p.Sibling = highest, sibling
	p.putHeader()
}

// Lead gives an internal page that is being made its leftmost child.
func (p *Page) Lead(child Addr) {
	p.Leftmost = child
	p.putHeader()
}

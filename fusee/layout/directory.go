package layout

import "errors"

// MaxDepth is the greatest depth of the directory.
const MaxDepth = 16

// ErrDirectory means that a word is no entry of the directory.
var ErrDirectory = errors.New("no entry of the directory")

// Entry is a word of the directory. Entries whose indices have the same lowest Depth bits are
// alike.
//
//	bits  0 to  7  local depth
//	bits  8 to 15  1: the subtable is being split
//	bits 16 to 31  number of the subtable
//	bits 32 to 63  the client that splits it
type Entry struct {
	Depth    int
	Subtable int
	// Owner is the client that is splitting the subtable; 0: no client is.
	Owner uint32
}

const splitting = 1 << 8

// Word is the word of the entry.
func (e Entry) Word() uint64 {
	w := uint64(byte(e.Depth)) | uint64(uint16(e.Subtable))<<16 | uint64(e.Owner)<<32
	if e.Owner != 0 {
		w |= splitting
	}
	return w
}

// Parse reads an entry of a directory.
func (e *Entry) Parse(w uint64) error {
	*e = Entry{Depth: int(byte(w)), Subtable: int(uint16(w >> 16)), Owner: uint32(w >> 32)}
	if e.Depth > MaxDepth || e.Word() != w {
		return ErrDirectory
	}
	return nil
}

// Directory is a copy of the directory in local memory.
type Directory struct {
	// Depth is the global depth. Entries has an entry for each prefix of Depth bits.
	Depth   int
	Entries []Entry
}

// Of returns the entry of a hash. The zero Directory has the zero entry for all.
func (d *Directory) Of(h Hash) Entry {
	if i := int(h.Prefix() & mask(d.Depth)); i < len(d.Entries) {
		return d.Entries[i]
	}
	return Entry{}
}

// Parse reads a directory: the word with the global depth, and an entry for each prefix.
func (d *Directory) Parse(depth uint64, words []uint64) error {
	if depth > MaxDepth || len(words) != 1<<depth {
		return ErrDirectory
	}
	d.Depth, d.Entries = int(depth), make([]Entry, len(words))
	for i, w := range words {
		if err := d.Entries[i].Parse(w); err != nil {
			return err
		}
		e := d.Entries[i]
		if first := d.Entries[i&int(mask(min(e.Depth, d.Depth)))]; e.Depth > d.Depth || first != e {
			return ErrDirectory
		}
	}
	return nil
}

package layout

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// MaxDepth is the greatest local depth of a subtable.
const MaxDepth = 16

// ErrDirectory means that a word is no entry of the directory.
var ErrDirectory = errors.New("no entry of the directory")

// The directory has a word for each subtable for which there is room. A subtable of local depth d has
// the keys whose prefixes have the number of the subtable in their lowest d bits. A split of it moves
// the keys with bit d to the subtable whose number has this bit as well, at the same places. So the
// number of a subtable says from which one it was split, and at which depth.

// Entry is the word of a subtable in the directory.
//
//	bits 0 to 7  local depth | bit 8  the subtable is being split
//
// It only ever changes to a word that it did not have before: a split begins, and Depth grows when it
// has ended. A subtable that is not in use has the depth with which its use begins.
type Entry struct {
	Depth     int
	Splitting bool
}

const splitting = 1 << 8

// Word is the word of the entry.
func (e Entry) Word() uint64 {
	w := uint64(byte(e.Depth))
	if e.Splitting {
		w |= splitting
	}
	return w
}

// Parse reads an entry of a directory.
func (e *Entry) Parse(w uint64) error {
	*e = Entry{Depth: int(byte(w)), Splitting: w&splitting != 0}
	if e.Depth > MaxDepth || e.Word() != w {
		return ErrDirectory
	}
	return nil
}

// Begin is the entry of a subtable before any split of it.
func (s *Shape) Begin(subtable int) Entry {
	return Entry{Depth: max(s.Depth, bits.Len(uint(subtable)))}
}

// Twin is the subtable to which a split of a subtable of a local depth moves keys. ok is false if there
// is no room for it.
func (s *Shape) Twin(subtable, depth int) (twin int, ok bool) {
	twin = subtable | 1<<depth
	return twin, depth < MaxDepth && twin < s.Subtables
}

// Moves reports whether a split of a subtable of that local depth moves the keys of a hash.
func (h Hash) Moves(depth int) bool { return h.Prefix()>>depth&1 != 0 }

// Homes appends to dst the subtables in which the keys of a hash can ever be, in the order in which
// splits move them.
func (s *Shape) Homes(h Hash, dst []int) []int {
	for depth := s.Depth; depth <= MaxDepth; depth++ {
		n := int(h.Prefix() & mask(depth))
		if n >= s.Subtables {
			break
		}
		if len(dst) == 0 || dst[len(dst)-1] != n {
			dst = append(dst, n)
		}
	}
	return dst
}

// Directory is a copy of the directory in local memory, which may be older than the directory.
type Directory struct{ entries []Entry }

// Of returns the subtable of a hash.
func (d *Directory) Of(s *Shape, h Hash) (subtable int, e Entry) {
	for depth := s.Depth; ; depth++ {
		subtable = int(h.Prefix() & mask(depth))
		if e = d.entries[subtable]; e.Depth <= depth {
			return subtable, e
		}
	}
}

// At returns the entry of a subtable.
func (d *Directory) At(subtable int) Entry { return d.entries[subtable] }

// Uses reports whether a subtable is in use: whether a split has begun that makes it.
func (d *Directory) Uses(s *Shape, subtable int) bool {
	for begin := s.Begin(subtable).Depth; begin > s.Depth; begin = s.Begin(subtable).Depth {
		subtable &= int(mask(begin - 1))
		if e := d.entries[subtable]; e.Depth < begin && (e.Depth != begin-1 || !e.Splitting) {
			return false
		}
	}
	return true
}

// Set changes the entry of a subtable. Its word must be one that Read accepts.
func (d *Directory) Set(s *Shape, subtable int, e Entry) error {
	_, ok := s.Twin(subtable, max(e.Depth-1, 0))
	if least := s.Begin(subtable).Depth; e.Depth < least || e.Depth > least && !ok {
		return ErrDirectory
	}
	if _, ok := s.Twin(subtable, e.Depth); e.Splitting && !ok {
		return ErrDirectory
	}
	d.entries[subtable] = e
	return nil
}

// Read reads the words of all subtables.
func (d *Directory) Read(s *Shape, b []byte) error {
	if len(b) != 8*s.Subtables {
		return ErrDirectory
	}
	d.entries = make([]Entry, s.Subtables)
	for i := range d.entries {
		var e Entry
		if err := e.Parse(binary.LittleEndian.Uint64(b[8*i:])); err != nil {
			return err
		}
		if err := d.Set(s, i, e); err != nil {
			return err
		}
	}
	return nil
}

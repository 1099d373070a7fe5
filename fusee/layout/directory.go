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

// The directory has a word for each subtable for which there is room. A subtable of local depth d
// has the keys whose prefixes have the number of the subtable in their lowest d bits. A split moves
// the keys that have a 1 in bit d. These keys go to the twin of the subtable: its number has a 1 in
// bit d, and the same other bits. So the number of a twin says from which subtable it was split,
// and at which depth. A key has the same place in both subtables.

// Entry is the word of a subtable in the directory.
//
//	bits 0 to 7  local depth | bit 8  the subtable is being split
//
// The word never returns to an earlier value: Splitting becomes true when a split begins, and Depth
// grows when it ends. A subtable that is not in use yet has the depth with which its use will
// begin.
type Entry struct {
	Depth     int
	Splitting bool
}

const splitting = 1 << 8

func (e Entry) Word() uint64 {
	w := uint64(byte(e.Depth))
	if e.Splitting {
		w |= splitting
	}
	return w
}

func (e *Entry) Parse(w uint64) error {
	*e = Entry{Depth: int(byte(w)), Splitting: w&splitting != 0}
	if e.Depth > MaxDepth || e.Word() != w {
		return ErrDirectory
	}
	return nil
}

// Begin returns the entry that a subtable has when its use begins, before the subtable itself is
// split.
func (s *Shape) Begin(subtable int) Entry {
	return Entry{Depth: max(s.Depth, bits.Len(uint(subtable)))}
}

// Twin returns the subtable to which a split of a subtable with the given local depth moves keys.
// ok is false if the index has no room for the twin.
func (s *Shape) Twin(subtable, depth int) (twin int, ok bool) {
	twin = subtable | 1<<depth
	return twin, depth < MaxDepth && twin < s.Subtables
}

// Moves reports whether a split of a subtable with the given local depth moves the keys with hash
// h.
func (h Hash) Moves(depth int) bool { return h.Prefix()>>depth&1 != 0 }

// Homes appends to dst the subtables in which keys with hash h can ever be, in the order in which
// splits move these keys.
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

// Directory is a copy of the directory in local memory. It may be older than the directory itself.
type Directory struct{ entries []Entry }

// Of returns the subtable of the keys with hash h, and its entry.
func (d *Directory) Of(s *Shape, h Hash) (subtable int, e Entry) {
	for depth := s.Depth; ; depth++ {
		subtable = int(h.Prefix() & mask(depth))
		if e = d.entries[subtable]; e.Depth <= depth {
			return subtable, e
		}
	}
}

func (d *Directory) At(subtable int) Entry { return d.entries[subtable] }

// Uses reports whether a subtable is in use: it is one of those that Format has made, or the split
// that moves keys to it has begun.
func (d *Directory) Uses(s *Shape, subtable int) bool {
	for begin := s.Begin(subtable).Depth; begin > s.Depth; begin = s.Begin(subtable).Depth {
		subtable &= int(mask(begin - 1))
		if e := d.entries[subtable]; e.Depth < begin && (e.Depth != begin-1 || !e.Splitting) {
			return false
		}
	}
	return true
}

// Set changes the entry of a subtable in this copy of the directory. It returns ErrDirectory for an
// entry that the subtable cannot have.
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

// Read parses b, which has the directory's word of each subtable, into d.
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

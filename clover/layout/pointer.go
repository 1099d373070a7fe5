package layout

import "fmt"

// Handle names a slab entry of any memory server. Zero names none.
type Handle uint32

// Version counts the uses of a slab entry, from 1 to MaxVersion; then an epoch must end before it
// is 1 again. Zero is no version.
type Version uint8

// MaxVersion is the last version of an entry before its epoch ends.
const MaxVersion Version = 254

// Next returns the version of an entry's next use. ok is false when the versions are used up: the
// entry may be used with version 1 only after every client has forgotten the locations of its
// earlier uses.
func (v Version) Next() (next Version, ok bool) {
	if v >= MaxVersion {
		return 1, false
	}
	return v + 1, true
}

// Word is the 64-bit header of a node; in a shortcut or a table it is a location.
//
//	63..60 59 .......... 28 27 26 .... 19 18 .... 11 10 ... 2  1 0
//	+-----+----------------+--+----------+----------+--------+-+-+
//	|  0  |     handle     |0 |   next   |  entry   |   0    |D|U|
//	|     |                |  | version  | version  |        | | |
//	+-----+----------------+--+----------+----------+--------+-+-+
//
// In a header, handle and next version name the successor, and the entry version is the node's own.
// D marks a tombstone: the key was deleted. No append to such a header succeeds, because no
// compare-and-swap expects the bit. U is the mark of uncommitted replicated nodes; it is always 0
// here.
//
// In a location, handle and entry version name the node itself; all other bits are 0, or, where a
// word is Stamped, a stamp.
type Word uint64

const (
	handleShift  = 28
	nextShift    = 19
	entryShift   = 11
	tombstoneBit = 1 << 1
	unusedBits   = Word(0xf<<60 | 1<<27 | 0x1ff<<2 | 1)
)

// Header is the word of a node that has no successor.
func Header(own Version) Word { return Word(own) << entryShift }

// Tombstone is the header of a node that marks its key as deleted. No node can follow it.
func Tombstone(own Version) Word { return Header(own) | tombstoneBit }

// Superseded is the header of a node of version own whose successor is the node that at names.
func Superseded(own Version, at Location) Word {
	return Word(at.Handle)<<handleShift | Word(at.Version)<<nextShift | Header(own)
}

// Handle is the successor's handle in a header, the node's own in a location.
func (w Word) Handle() Handle { return Handle(w >> handleShift & 0xffffffff) }

// NextVersion is the successor's version.
func (w Word) NextVersion() Version { return Version(w >> nextShift) }

// EntryVersion is the node's own version in a header, and the version of the named node in a
// location.
func (w Word) EntryVersion() Version { return Version(w >> entryShift) }

// IsTombstone reports whether the mark of a deleted key is set.
func (w Word) IsTombstone() bool { return w&tombstoneBit != 0 }

// Next is the location of a header's successor; ok is false if it has none.
func (w Word) Next() (at Location, ok bool) {
	return Location{w.Handle(), w.NextVersion()}, w.Handle() != 0
}

// WithEntryVersion returns w with another entry version; a switch that steers needs it.
func (w Word) WithEntryVersion(v Version) Word {
	return w&^(0xff<<entryShift) | Word(v)<<entryShift
}

// Valid reports whether w can be a header: no unused bit is set, the entry has a version, and w has
// either both a successor and its version or neither.
func (w Word) Valid() bool {
	return w&unusedBits == 0 && w.EntryVersion() != 0 && (w.Handle() == 0) == (w.NextVersion() == 0) &&
		(!w.IsTombstone() || w.Handle() == 0)
}

// String prints a header.
func (w Word) String() string {
	switch at, ok := w.Next(); {
	case w.IsTombstone():
		return fmt.Sprintf("v%d deleted", w.EntryVersion())
	case ok:
		return fmt.Sprintf("v%d → %v", w.EntryVersion(), at)
	}
	return fmt.Sprintf("v%d newest", w.EntryVersion())
}

// Location names one version of one entry: all that a client remembers of a key besides its slot.
type Location struct {
	Handle  Handle
	Version Version
}

// IsZero reports whether the location names nothing.
func (l Location) IsZero() bool { return l.Handle == 0 }

// Word returns the location as a shortcut contains it.
func (l Location) Word() Word {
	if l.IsZero() {
		return 0
	}
	return Word(l.Handle)<<handleShift | Header(l.Version)
}

// LocationOf reads a shortcut. ok is false if it holds none.
func LocationOf(w Word) (l Location, ok bool) {
	l = Location{w.Handle(), w.EntryVersion()}
	if w != l.Word() || l.IsZero() || l.Version == 0 {
		return Location{}, false
	}
	return l, true
}

// MaxStamp is the largest stamp of a word.
const MaxStamp = 1<<24 - 1

// Where the bits of a stamp are in a word: bits 0 to 10 of the stamp in the lowest bits, 11 to 19
// between the versions, the others above the handle.
const (
	stampLow, stampMiddle = 11, 20
	topShift              = 60
)

// Stamped returns the location as a shortcut or a record of the directory contains it: with a stamp
// of 24 bits that says how long the location is valid. In a shortcut, the stamp is the epoch in
// which the node was linked; in a record, it is the generation of the memory in which the node is.
// Higher bits of these are left out.
func (l Location) Stamped(stamp uint32) Word {
	if l.IsZero() {
		return 0
	}
	s := Word(stamp & MaxStamp)
	low, middle, top := s&(1<<stampLow-1), s>>stampLow&(1<<(stampMiddle-stampLow)-1), s>>stampMiddle
	return l.Word() | low | middle<<nextShift | top<<topShift
}

// StampedLocation reads what Stamped returned. ok is false if the word holds no location.
func StampedLocation(w Word) (l Location, stamp uint32, ok bool) {
	l = Location{w.Handle(), w.EntryVersion()}
	stamp = uint32(w&(1<<stampLow-1) | w>>nextShift&(1<<(stampMiddle-stampLow)-1)<<stampLow | w>>topShift<<stampMiddle)
	return l, stamp, !l.IsZero() && l.Version != 0
}

// String prints handle and version.
func (l Location) String() string { return fmt.Sprintf("%d.%d", l.Handle, l.Version) }

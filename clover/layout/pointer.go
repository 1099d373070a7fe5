package layout

import "fmt"

// Handle names a slab entry of any memory server. Zero names none.
type Handle uint32

// Version counts the lives of a slab entry: 1 to MaxVersion, then an epoch must pass before it is 1 again.
// Zero is no version.
type Version uint8

// MaxVersion is the last version of an entry before its epoch ends.
const MaxVersion Version = 254

// Next is the version of an entry's next life. ok is false when its versions are used up: it may return with version 1
// only when no client remembers a location of its old lives.
func (v Version) Next() (next Version, ok bool) {
	if v >= MaxVersion {
		return 1, false
	}
	return v + 1, true
}

// Word is the 64-bit header of a node, and a location when it is kept in a shortcut or a table.
//
//	63..60 59 .......... 28 27 26 .... 19 18 .... 11 10 ... 2  1 0
//	+-----+----------------+--+----------+----------+--------+-+-+
//	|  0  |     handle     |0 |   next   |  entry   |   0    |D|U|
//	|     |                |  | version  | version  |        | | |
//	+-----+----------------+--+----------+----------+--------+-+-+
//
// In a header, handle and next version name the successor and the entry version is the node's own. D marks a tombstone:
// the key was deleted, and no append to such a header succeeds, since nobody expects the bit. U is the uncommitted mark
// of replicated nodes; it is always 0 here.
//
// In a location, handle and entry version name the node itself; all else is 0.
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

// Tombstone is the header of a node that ends its chain for good.
func Tombstone(own Version) Word { return Header(own) | tombstoneBit }

// Superseded is the header of a node of version own whose successor is at.
func Superseded(own Version, at Location) Word {
	return Word(at.Handle)<<handleShift | Word(at.Version)<<nextShift | Header(own)
}

// Handle is the successor's in a header, the node's own in a location.
func (w Word) Handle() Handle { return Handle(w >> handleShift & 0xffffffff) }

// NextVersion is the successor's version.
func (w Word) NextVersion() Version { return Version(w >> nextShift) }

// EntryVersion is the version of the entry in which the word stands, or that a location names.
func (w Word) EntryVersion() Version { return Version(w >> entryShift) }

// IsTombstone reports the mark of a deleted key.
func (w Word) IsTombstone() bool { return w&tombstoneBit != 0 }

// Next is the location of a header's successor; ok is false if it has none.
func (w Word) Next() (at Location, ok bool) {
	return Location{w.Handle(), w.NextVersion()}, w.Handle() != 0
}

// WithEntryVersion is w in an entry of another version, as steering needs it.
func (w Word) WithEntryVersion(v Version) Word {
	return w&^(0xff<<entryShift) | Word(v)<<entryShift
}

// Valid reports whether w can be a header: no unused bit is set, the entry has a version, and a successor has one exactly
// when there is one.
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

// Location is one life of one entry: all that a client remembers of a key.
type Location struct {
	Handle  Handle
	Version Version
}

// IsZero reports the location of nothing.
func (l Location) IsZero() bool { return l.Handle == 0 }

// Word is the location as it stands in a shortcut.
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

// String prints handle and version.
func (l Location) String() string { return fmt.Sprintf("%d.%d", l.Handle, l.Version) }

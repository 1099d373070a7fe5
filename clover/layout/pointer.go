package layout

import "fmt"

// Handle is the number of an entry, which is the memory of one node. The entries of all memory
// servers are numbered together (see Space). 0 names no entry.
type Handle uint32

// Version distinguishes the uses of a slab entry: each has a higher version than the one before,
// from 1 to MaxVersion. After MaxVersion an epoch must end before the version is 1 again. 0 is no
// version.
type Version uint8

// MaxVersion is the last version of an entry before an epoch must end.
const MaxVersion Version = 254

// Next returns the version of an entry's next use. If all versions are used up, ok is false and
// `next` is 1: the entry may be used with version 1 only after every client has forgotten the
// locations of its earlier uses.
func (v Version) Next() (next Version, ok bool) {
	if v >= MaxVersion {
		return 1, false
	}
	return v + 1, true
}

// MaxLag is the largest number by which Pace raises a version.
const MaxLag = 64

// Pace returns the version for a use of an entry whose next version would be v, and the new front:
// the highest version of the entries that are used again and again. If v is below the front by at
// most MaxLag, because the entry was used seldom, Pace returns the front. The reason: a switch steers
// a request only to a node of the same or a higher version, so later nodes of a key should not have
// lower versions. If v is further below, the versions have begun again with 1, and v is the new
// front.
func (v Version) Pace(front Version) (use, next Version) {
	if lag := int(front) - int(v); lag <= 0 || lag > MaxLag {
		return v, v
	}
	return front, front
}

// Word is the 64-bit header of a node, or a location in a shortcut or in the directory.
//
//	63..60 59 .......... 28 27 26 .... 19 18 .... 11 10 ... 2  1 0
//	+-----+----------------+--+----------+----------+--------+-+-+
//	|  0  |     handle     |0 |   next   |  entry   |   0    |D|U|
//	|     |                |  | version  | version  |        | | |
//	+-----+----------------+--+----------+----------+--------+-+-+
//
// In a header, the handle and the next version name the successor, and the entry version is the
// node's own. D marks a tombstone: the key was deleted. No append to a tombstone succeeds, because
// no compare-and-swap expects the bit D. In the published system U marks replicated nodes that are
// not committed; here U is always 0.
//
// In a location, the handle and the entry version name the node itself. All other bits are 0 or, in
// a Stamped word, a stamp.
type Word uint64

const (
	handleShift  = 28
	nextShift    = 19
	entryShift   = 11
	tombstoneBit = 1 << 1
	unusedBits   = Word(0xf<<60 | 1<<27 | 0x1ff<<2 | 1)
)

// Header returns the header of a node that has no successor; own is the node's version.
func Header(own Version) Word { return Word(own) << entryShift }

// Tombstone returns the header of a node that marks its key as deleted. No node can be appended to
// it.
func Tombstone(own Version) Word { return Header(own) | tombstoneBit }

// Superseded returns the header of a node whose successor is `at`; own is the node's version.
func Superseded(own Version, at Location) Word {
	return Word(at.Handle)<<handleShift | Word(at.Version)<<nextShift | Header(own)
}

// Told returns the header of a node without successor that a switch shows to a client whose append
// it has steered to another node, and which has succeeded: own is the version that the client named,
// tail that of the other node. No node has such a header.
func Told(own, tail Version) Word { return Header(own) | Word(tail)<<nextShift }

// Told returns the version of the node to which a switch has steered an append. ok is false if w is
// no header that Told makes.
func (w Word) Told() (tail Version, ok bool) {
	return w.NextVersion(), w.Handle() == 0 && w.NextVersion() != 0 && w == Told(w.EntryVersion(), w.NextVersion())
}

// Handle returns the successor's handle if w is a header, and the node's own handle if w is a
// location.
func (w Word) Handle() Handle { return Handle(w >> handleShift & 0xffffffff) }

// NextVersion returns the successor's version.
func (w Word) NextVersion() Version { return Version(w >> nextShift) }

// EntryVersion returns the node's own version if w is a header, and the version of the named node
// if w is a location.
func (w Word) EntryVersion() Version { return Version(w >> entryShift) }

// IsTombstone reports whether the bit D is set.
func (w Word) IsTombstone() bool { return w&tombstoneBit != 0 }

// Next returns the location of the successor in a header. ok is false if the header names none.
func (w Word) Next() (at Location, ok bool) {
	return Location{w.Handle(), w.NextVersion()}, w.Handle() != 0
}

// WithEntryVersion returns w with another entry version. A switch calls it when it steers a request
// to a node with another version.
func (w Word) WithEntryVersion(v Version) Word {
	return w&^(0xff<<entryShift) | Word(v)<<entryShift
}

// Valid reports whether w can be a header. All unused bits are 0, the entry has a version, w has
// both a successor's handle and its version or neither, and a tombstone has no successor.
func (w Word) Valid() bool {
	return w&unusedBits == 0 && w.EntryVersion() != 0 && (w.Handle() == 0) == (w.NextVersion() == 0) &&
		(!w.IsTombstone() || w.Handle() == 0)
}

func (w Word) String() string {
	switch at, ok := w.Next(); {
	case w.IsTombstone():
		return fmt.Sprintf("v%d deleted", w.EntryVersion())
	case ok:
		return fmt.Sprintf("v%d → %v", w.EntryVersion(), at)
	}
	return fmt.Sprintf("v%d newest", w.EntryVersion())
}

// Location names one version of one entry, and so one node.
type Location struct {
	Handle  Handle
	Version Version
}

func (l Location) IsZero() bool { return l.Handle == 0 }

// Word returns the location as a word without stamp.
func (l Location) Word() Word {
	if l.IsZero() {
		return 0
	}
	return Word(l.Handle)<<handleShift | Header(l.Version)
}

// LocationOf returns the location in a word without stamp. ok is false if w is no such word.
func LocationOf(w Word) (l Location, ok bool) {
	l = Location{w.Handle(), w.EntryVersion()}
	if w != l.Word() || l.IsZero() || l.Version == 0 {
		return Location{}, false
	}
	return l, true
}

// MaxStamp is the largest stamp that a word can contain.
const MaxStamp = 1<<24 - 1

// The bits of a stamp are in three parts of a word: bits 0 to 10 of the stamp are bits 0 to 10 of
// the word, bits 11 to 19 are bits 19 to 27, and bits 20 to 23 are bits 60 to 63.
const (
	stampLow, stampMiddle = 11, 20
	topShift              = 60
)

// Stamped returns the location as a shortcut or a record of the directory contains it, with a stamp
// of 24 bits. In a shortcut, the stamp is the epoch in which the node was linked. In a record, it
// is KeyRecord.Generation. Higher bits of these numbers are left out.
func (l Location) Stamped(stamp uint32) Word {
	if l.IsZero() {
		return 0
	}
	s := Word(stamp & MaxStamp)
	low, middle, top := s&(1<<stampLow-1), s>>stampLow&(1<<(stampMiddle-stampLow)-1), s>>stampMiddle
	return l.Word() | low | middle<<nextShift | top<<topShift
}

// StampedLocation returns what Stamped has put into a word. ok is false if w contains no location.
func StampedLocation(w Word) (l Location, stamp uint32, ok bool) {
	l = Location{w.Handle(), w.EntryVersion()}
	stamp = uint32(w&(1<<stampLow-1) | w>>nextShift&(1<<(stampMiddle-stampLow)-1)<<stampLow | w>>topShift<<stampMiddle)
	return l, stamp, !l.IsZero() && l.Version != 0
}

func (l Location) String() string { return fmt.Sprintf("%d.%d", l.Handle, l.Version) }

package layout

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Lengths of the parts of a node, in bytes.
const (
	// HeaderLen is the length of the header, the word at the start of the node.
	HeaderLen = 8
	// KeyLen is the length of the key, which comes after the header in keyed formats.
	KeyLen = 8
	// CheckLen is the length of the trailer in checked formats, which is at the end of the slab,
	// the memory of one node.
	CheckLen = 8
)

// Format says which fields a node has besides header and value. The zero value is the published
// format, which has no other fields. In it a value always fills the slab behind the header, and
// only the header's version protects a reader against a node that is reused while it is being read.
type Format struct {
	// Keyed is true if nodes have their key after the header, where a switch can read it.
	Keyed bool
	// Checked is true if nodes have their length, version and a checksum at the end of the slab.
	// With them a reader recognises a torn copy, in whatever order the bytes were copied.
	Checked bool
}

// Published is the published format. Keyed has keys. Hardened, the default of a store, has keys and
// checksums.
var (
	Published = Format{}
	Keyed     = Format{Keyed: true}
	Hardened  = Format{Keyed: true, Checked: true}
)

// Bits that stand for the fields of a Format in packets and in memory.
const (
	formatKeyed = 1 << iota
	formatChecked
)

// Bits returns the format as a number.
func (f Format) Bits() (b uint32) {
	if f.Keyed {
		b |= formatKeyed
	}
	if f.Checked {
		b |= formatChecked
	}
	return b
}

// FormatOf returns the Format for a number that Bits returned. ok is false if b has other bits.
func FormatOf(b uint32) (f Format, ok bool) {
	return Format{Keyed: b&formatKeyed != 0, Checked: b&formatChecked != 0}, b < formatChecked<<1
}

// Overhead returns the number of bytes of a node that are not its value.
func (f Format) Overhead() int {
	n := HeaderLen
	if f.Keyed {
		n += KeyLen
	}
	if f.Checked {
		n += CheckLen
	}
	return n
}

// Capacity returns the length of the longest value that fits into a slab, in bytes.
func (f Format) Capacity(slab int) int { return max(0, slab-f.Overhead()) }

// Errors of ParseNode.
var (
	// ErrTorn means that the parts of a node do not fit together, because the node was written
	// while it was being read.
	ErrTorn     = errors.New("node was written while it was read")
	ErrNode     = errors.New("not a node")
	ErrOtherKey = errors.New("node of another key")
)

// PutNode writes a whole node into slab, which has the length of the node's class. It clears the
// bytes after the value. It returns false if the value does not fit.
func (f Format) PutNode(slab []byte, header Word, key uint64, value []byte) bool {
	if len(value) > f.Capacity(len(slab)) {
		return false
	}
	binary.LittleEndian.PutUint64(slab, uint64(header))
	at := HeaderLen
	if f.Keyed {
		binary.LittleEndian.PutUint64(slab[at:], key)
		at += KeyLen
	}
	n := copy(slab[at:], value)
	clear(slab[at+n:])
	if f.Checked {
		tail := slab[len(slab)-CheckLen:]
		binary.LittleEndian.PutUint16(tail, uint16(n))
		tail[2] = byte(header.EntryVersion())
		binary.LittleEndian.PutUint32(tail[4:], f.checksum(slab, key, n))
	}
	return true
}

// ParseNode parses a node that PutNode wrote. header is the node's first word, which may name a
// successor by now. value is a part of slab; in a format without Checked it reaches to the slab's
// end. The errors are ErrNode, ErrTorn and ErrOtherKey.
func (f Format) ParseNode(slab []byte, key uint64) (header Word, value []byte, err error) {
	if len(slab) < f.Overhead() {
		return 0, nil, ErrNode
	}
	header = Word(binary.LittleEndian.Uint64(slab))
	if !header.Valid() {
		return header, nil, ErrNode
	}
	at, n := HeaderLen, f.Capacity(len(slab))
	if f.Checked {
		tail := slab[len(slab)-CheckLen:]
		got := int(binary.LittleEndian.Uint16(tail))
		if got > n || Version(tail[2]) != header.EntryVersion() {
			return header, nil, ErrTorn
		}
		n = got
	}
	own := key
	if f.Keyed {
		own = binary.LittleEndian.Uint64(slab[at:])
		at += KeyLen
	}
	if f.Checked && binary.LittleEndian.Uint32(slab[len(slab)-4:]) != f.checksum(slab, own, n) {
		return header, nil, ErrTorn
	}
	if own != key {
		return header, nil, ErrOtherKey
	}
	return header, slab[at : at+n], nil
}

// Relabel changes the version in a copy of a whole node. A switch that steers calls it. Relabel
// returns false and changes nothing if the version in the copy is not `from`, or if the format
// shows that the copy is torn.
func (f Format) Relabel(slab []byte, from, to Version) bool {
	if len(slab) < f.Overhead() {
		return false
	}
	header := HeaderOf(slab)
	if !header.Valid() || header.EntryVersion() != from {
		return false
	}
	if f.Checked {
		key, _ := KeyOf(slab)
		if _, _, err := f.ParseNode(slab, key); err != nil {
			return false
		}
		tail := slab[len(slab)-CheckLen:]
		tail[2] = byte(to)
		binary.LittleEndian.PutUint32(tail[4:], f.checksum(slab, key, int(binary.LittleEndian.Uint16(tail))))
	}
	binary.LittleEndian.PutUint64(slab, uint64(header.WithEntryVersion(to)))
	return true
}

// HeaderOf returns the first word of a node.
func HeaderOf(b []byte) Word { return Word(binary.LittleEndian.Uint64(b)) }

// KeyOf returns the key of a node in a keyed format. ok is false if b is too short.
func KeyOf(b []byte) (key uint64, ok bool) {
	if len(b) < HeaderLen+KeyLen {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[HeaderLen:]), true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of the key, the version, the length and the value. These parts of a
// node do not change as long as its entry has the same version.
func (f Format) checksum(slab []byte, key uint64, n int) uint32 {
	var sum uint32
	if f.Keyed { // the key is in the slab, so it need not be copied
		sum = crc32.Update(0, castagnoli, slab[HeaderLen:HeaderLen+KeyLen])
	} else {
		sum = crc32.Update(0, castagnoli, binary.LittleEndian.AppendUint64(nil, key))
	}
	sum = crc32.Update(sum, castagnoli, slab[len(slab)-CheckLen:len(slab)-CheckLen+4])
	at := f.Overhead() - CheckLen
	return crc32.Update(sum, castagnoli, slab[at:at+n])
}

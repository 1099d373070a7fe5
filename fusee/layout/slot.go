package layout

import "encoding/binary"

// Format is a format of the remote memory.
type Format uint8

// Formats.
const (
	Hardened Format = iota
	Published
)

// String returns the name of the format.
func (f Format) String() string {
	if f == Published {
		return "published"
	}
	return "hardened"
}

// Unit is the unit of the lengths and places of objects, in bytes.
const Unit = 256

// Limits of what a slot can name.
const (
	MaxServers = 16
	// MaxUnits is the length of the longest object in units.
	MaxUnits = 255
	// MaxPlace is the largest number of units of an area, 4 GiB: a hardened slot has 24 bits for
	// the place of an object.
	MaxPlace = 1 << 24
	// MaxVersion is the last version of an object.
	MaxVersion = 1<<20 - 1
)

// Slot is a word of the index that names an object. It is the number that a CAS compares; remote
// memory has it in little-endian byte order. If the replicas of a slot differ, the last rule of
// SNAPSHOT (package snapshot) compares their Slots as numbers. Its bytes in remote memory:
//
//	hardened   0: fingerprint | 1: length | 2-7: version (20 bits), server (4), place (24)
//	published  0: fingerprint | 1: length | 2: server | 3-7: address in units, big-endian
type Slot uint64

// Ref is the content of a slot in its parts.
type Ref struct {
	Fingerprint byte
	// Units is the length of the object in units; 0 means that the slot is empty.
	Units int
	// Server is the server with the first replica of the object. Place is the offset of the object
	// in area 0 of that server, which has first replicas, in multiples of Unit. (In the public code
	// a slot has the object's virtual address instead, because areas begin at the same address on
	// all servers.)
	Server int
	Place  uint64
	// Version is the version of the object. It grows with each use of the object's memory (Hardened
	// only).
	Version uint32
}

// Slot encodes a Ref. Fields that are too large lose their upper bits.
func (f Format) Slot(r Ref) Slot {
	low := uint64(r.Fingerprint) | uint64(byte(r.Units))<<8
	if f == Hardened {
		return Slot(low | uint64(r.Version&MaxVersion)<<16 | uint64(r.Server%MaxServers)<<36 | r.Place%MaxPlace<<40)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], r.Place&(1<<40-1))
	return Slot(low | uint64(byte(r.Server))<<16 | binary.LittleEndian.Uint64(b[:]))
}

func (f Format) Ref(s Slot) Ref {
	r := Ref{Fingerprint: byte(s), Units: int(byte(s >> 8))}
	if f == Hardened {
		r.Version, r.Server, r.Place = uint32(s>>16)&MaxVersion, int(s>>36%MaxServers), uint64(s>>40)
		return r
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(s))
	b[0], b[1], b[2] = 0, 0, 0
	r.Server, r.Place = int(byte(s>>16)), binary.BigEndian.Uint64(b[:])
	return r
}

// Empty reports whether the slot names no object.
func (f Format) Empty(s Slot) bool {
	if f == Published {
		return s == 0
	}
	return byte(s>>8) == 0
}

// Emptied returns the value that a DELETE leaves in a slot. r is the object that the DELETE uses
// for its log entry. No other operation uses this object, so in the hardened format no other DELETE
// leaves the same value. A slot whose INSERT is withdrawn, or whose key has moved, gets the value
// for the object that the slot has named.
func (f Format) Emptied(r Ref) Slot {
	if f == Published {
		return 0
	}
	r.Fingerprint, r.Units = 0, 0
	return f.Slot(r)
}

// Leave returns the value that replaces a slot when its key moves to another subtable (Hardened
// only). The value counts as empty, but says which object the slot has named: it has the object's
// length in the place of the fingerprint. No DELETE leaves such a value.
func (f Format) Leave(s Slot) Slot {
	r := f.Ref(s)
	r.Fingerprint, r.Units = byte(r.Units), 0
	return f.Slot(r)
}

// Leaving reports whether s is a value that Leave returns.
func (f Format) Leaving(s Slot) bool { return f == Hardened && byte(s>>8) == 0 && byte(s) != 0 }

// Vacated reports whether s is a value that a split leaves in a slot that had the value `was`: the
// split moves the key of that value to another subtable (the key is leaving) or has moved it (the
// key has left).
func (f Format) Vacated(s, was Slot) bool {
	r := f.Ref(was)
	return f == Hardened && (r.Units > 0 && s == f.Leave(was) || (r.Units > 0 || f.Leaving(was)) && s == f.Emptied(r))
}

// Left returns the value from which Leave has made s: the value that the slot had before its key
// was leaving. fingerprint is that of the slot's key.
func (f Format) Left(s Slot, fingerprint byte) Slot {
	r := f.Ref(s)
	r.Fingerprint, r.Units = fingerprint, int(r.Fingerprint)
	return f.Slot(r)
}

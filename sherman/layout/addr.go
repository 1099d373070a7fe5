package layout

import (
	"encoding/binary"
	"fmt"
)

// Kind is how pages are protected against what is written while they are read.
type Kind uint8

// Kinds.
const (
	Sound Kind = iota
	Faithful
)

// String is the name of the kind.
func (k Kind) String() string {
	if k == Faithful {
		return "faithful"
	}
	return "sound"
}

// KindOf reads what String returned; "" is Sound.
func KindOf(name string) (Kind, error) {
	switch name {
	case "", "sound":
		return Sound, nil
	case "faithful":
		return Faithful, nil
	}
	return Sound, fmt.Errorf("layout %q: want sound or faithful", name)
}

// Addr names a byte of a memory server's region: the server's number in the low 16 bits, the offset in the others. Zero, the
// superblock of server 0, stands for no address.
type Addr uint64

// At makes an address.
func At(server int, offset uint64) Addr { return Addr(offset<<16 | uint64(uint16(server))) }

// Server is the number of the memory server.
func (a Addr) Server() int { return int(uint16(a)) }

// Offset is the offset in the region of the server, in bytes.
func (a Addr) Offset() uint64 { return uint64(a) >> 16 }

// String is server:offset.
func (a Addr) String() string {
	if a == 0 {
		return "none"
	}
	return fmt.Sprintf("%d:%#x", a.Server(), a.Offset())
}

// Tag is a lock word: zero if the lock is free, else who holds it and the number of the acquisition, which is unique for an
// owner until it wraps after 2^32.
type Tag uint64

// MakeTag makes a tag. owner 0 is nobody.
func MakeTag(owner, seq uint32) Tag { return Tag(uint64(owner)<<32 | uint64(seq)) }

// Owner is who holds the lock. Owners are numbered by each memory server for itself.
func (t Tag) Owner() uint32 { return uint32(t >> 32) }

// Seq is the number of the acquisition.
func (t Tag) Seq() uint32 { return uint32(t) }

// String is owner/number.
func (t Tag) String() string {
	if t == 0 {
		return "free"
	}
	return fmt.Sprintf("%d/%d", t.Owner(), t.Seq())
}

// LockOf is the index of the lock word that guards a page: on the page's own server, one of words. Several pages share one. (The
// published code takes CityHash64; any hash will do, as the table does not say which.)
func LockOf(page Addr, words int) int {
	x := uint64(page) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(max(words, 1)))
}

// TagOf reads a lock word as a NIC leaves it, in the byte order of the host.
func TagOf(b []byte) Tag { return Tag(binary.NativeEndian.Uint64(b)) }

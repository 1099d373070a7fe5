package layout

import (
	"encoding/binary"
	"fmt"
)

// Kind is a layout of pages. The kinds differ in how a reader notices a WRITE during its READ.
type Kind uint8

// Kinds.
const (
	Hardened Kind = iota
	Published
	Checksummed
)

// String returns the older name of the kind, which the recorded plans of scenarios contain.
func (k Kind) String() string {
	switch k {
	case Hardened:
		return "sound"
	case Published:
		return "faithful"
	case Checksummed:
	}
	return "checksummed"
}

// Addr names a byte of a memory server's region, or an incarnation of the page that begins there:
// if the memory of a page is reused, the new page is another incarnation, and pointers to the
// former one do not name it. Zero, the superblock of server 0, means no address.
//
//	bits  0 to  5  number of the server
//	bits  6 to 15  incarnation, its low 10 bits
//	bits 16 to 55  offset in bytes
//	bits 56 to 63  incarnation, its high 8 bits
type Addr uint64

const (
	serverBits  = 6
	lowLife     = 16 - serverBits
	offsetBits  = 40
	highLife    = 8
	pageBits    = (1<<offsetBits-1)<<16 | (1<<serverBits - 1)
	incarnation = 1<<(lowLife+highLife) - 1
)

// At returns the address of an offset, below 2^40, in the region of a server.
func At(server int, offset uint64) Addr {
	return Addr(offset<<16|uint64(server)&(1<<serverBits-1)) & pageBits
}

// Server is the number of the memory server.
func (a Addr) Server() int { return int(a & (1<<serverBits - 1)) }

// Offset is the offset in the region of the server, in bytes.
func (a Addr) Offset() uint64 { return uint64(a) >> 16 & (1<<offsetBits - 1) }

// Incarnation counts how often the memory of the page was reused.
func (a Addr) Incarnation() int {
	return int(a>>serverBits&(1<<lowLife-1)) | int(a>>(16+offsetBits))<<lowLife
}

// Place is the address without the incarnation.
func (a Addr) Place() Addr { return a & pageBits }

// Next returns the next incarnation of a page; false: all of them have been used.
func (a Addr) Next() (Addr, bool) {
	n := uint64(a.Incarnation() + 1)
	return a.Place() | Addr(n&(1<<lowLife-1)<<serverBits|n>>lowLife<<(16+offsetBits)), n <= incarnation
}

// String is server:offset, and the incarnation if it is not the first.
func (a Addr) String() string {
	switch n := a.Incarnation(); {
	case a == 0:
		return "none"
	case n > 0:
		return fmt.Sprintf("%d:%#x+%d", a.Server(), a.Offset(), n)
	}
	return fmt.Sprintf("%d:%#x", a.Server(), a.Offset())
}

// Tag is the value of a lock word: zero if the lock is free, otherwise the owner and the number of
// the acquisition. The numbers of an owner are unique until they wrap around after 2^32.
type Tag uint64

// MakeTag makes a tag. owner 0 means no owner.
func MakeTag(owner, seq uint32) Tag { return Tag(uint64(owner)<<32 | uint64(seq)) }

// Owner is the owner that holds the lock. Each memory server numbers owners independently.
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

// LockOf returns the index, below words, of the lock word that protects a page; the word is on the
// page's server. Several pages share a word. (The published code uses CityHash64; any hash will do,
// because the table does not depend on it.)
func LockOf(page Addr, words int) int {
	x := uint64(page.Place()) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(max(words, 1)))
}

// TagOf reads a lock word as a NIC writes it to local memory, in the byte order of the host.
func TagOf(b []byte) Tag { return Tag(binary.NativeEndian.Uint64(b)) }

package layout

import (
	"encoding/binary"
	"fmt"
)

// Kind is a layout of pages. The kinds differ in how a reader notices that a page was written while
// it was being read.
type Kind uint8

// Kinds of pages.
const (
	Hardened Kind = iota
	Published
	Checksummed
)

// String returns an older name of Hardened and Published, because recorded plans of scenarios
// contain these names.
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

// Addr is the address of a byte in a memory server's region, or of an incarnation of the page that
// begins there. If the memory of a page is reused, the new page is another incarnation with another
// Addr, so pointers to the former page do not name the new one. 0, where the superblock of server 0
// is, means no address.
//
//	bits  0 to  5  number of the server
//	bits  6 to 15  low 10 bits of the incarnation
//	bits 16 to 55  offset in bytes
//	bits 56 to 63  high 8 bits of the incarnation
type Addr uint64

const (
	serverBits  = 6
	lowLife     = 16 - serverBits
	offsetBits  = 40
	highLife    = 8
	pageBits    = (1<<offsetBits-1)<<16 | (1<<serverBits - 1)
	incarnation = 1<<(lowLife+highLife) - 1
)

// At returns the address of an offset in the region of a server. The offset must be below 2^40.
func At(server int, offset uint64) Addr {
	return Addr(offset<<16|uint64(server)&(1<<serverBits-1)) & pageBits
}

// Server returns the number of the memory server.
func (a Addr) Server() int { return int(a & (1<<serverBits - 1)) }

// Offset returns the offset in the region of the server, in bytes.
func (a Addr) Offset() uint64 { return uint64(a) >> 16 & (1<<offsetBits - 1) }

// Incarnation returns how many times the memory of the page was reused.
func (a Addr) Incarnation() int {
	return int(a>>serverBits&(1<<lowLife-1)) | int(a>>(16+offsetBits))<<lowLife
}

// Place returns the address without the incarnation.
func (a Addr) Place() Addr { return a & pageBits }

// Next returns the address of the next incarnation of a page. It returns false if all incarnations
// have been used.
func (a Addr) Next() (Addr, bool) {
	n := uint64(a.Incarnation() + 1)
	return a.Place() | Addr(n&(1<<lowLife-1)<<serverBits|n>>lowLife<<(16+offsetBits)), n <= incarnation
}

// String returns server:offset, followed by the incarnation if it is not the first.
func (a Addr) String() string {
	switch n := a.Incarnation(); {
	case a == 0:
		return "none"
	case n > 0:
		return fmt.Sprintf("%d:%#x+%d", a.Server(), a.Offset(), n)
	}
	return fmt.Sprintf("%d:%#x", a.Server(), a.Offset())
}

// Tag is the value of a lock word: 0 if the lock is free, otherwise the number of the owner and the
// number of the acquisition. The acquisitions of an owner have different numbers until they wrap
// around after 2^32.
type Tag uint64

// MakeTag returns the tag of an owner with the acquisition number seq. Owner 0 means no owner.
func MakeTag(owner, seq uint32) Tag { return Tag(uint64(owner)<<32 | uint64(seq)) }

// Owner returns the owner that holds the lock. Each memory server numbers owners independently.
func (t Tag) Owner() uint32 { return uint32(t >> 32) }

// Seq returns the number of the acquisition.
func (t Tag) Seq() uint32 { return uint32(t) }

// String returns owner/number, or "free".
func (t Tag) String() string {
	if t == 0 {
		return "free"
	}
	return fmt.Sprintf("%d/%d", t.Owner(), t.Seq())
}

// LockOf returns the index of the lock word that protects a page, from 0 to words-1, on the page's
// server. Several pages share a word. (The published code uses CityHash64. Any other hash works as
// well.)
func LockOf(page Addr, words int) int {
	return int(Mix(uint64(page.Place())) % uint64(max(words, 1)))
}

// Mix is the step of the generator splitmix64. It serves as a hash: numbers that differ in few bits
// give results that differ in many.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// TagOf reads a lock word from local memory, into which the NIC has written it in the byte order of
// the host.
func TagOf(b []byte) Tag { return Tag(binary.NativeEndian.Uint64(b)) }

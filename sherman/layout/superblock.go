package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/rdmalab/rdmalab/store/superblock"
)

// Offsets in the region of a memory server, in bytes.
const (
	// SuperblockLen is the length of the superblock at offset 0.
	SuperblockLen = 64
	// AllocWord is the offset of a word that contains the offset of the server's next unused
	// memory. Clients take memory by a FETCH_ADD on it.
	AllocWord = 64
	// FreeWord is the offset of the word that names the first page in the server's list of unused
	// pages. See FreeHead.
	FreeWord = 80
	// OwnerWord is the offset of a word that contains the last owner number given out. Clients take
	// owner numbers by a FETCH_ADD on it.
	OwnerWord = 72
	// RootWord is the offset, on server 0, of a word that contains the address of the root page.
	// (The published code has it at 16 MiB.)
	RootWord = 128
	// LocksAt is the offset of the lock words if they are in host memory.
	LocksAt = 4096
)

// Limits of a superblock.
const (
	MaxServers   = 64
	MaxLockWords = 1 << 20
	DefaultLocks = 32768
	DefaultChunk = 1 << 20
	MinChunk     = 4096
	MaxChunk     = 1 << 30
)

// Superblock describes a tree. Each server has one. They differ only in Server and Len.
type Superblock struct {
	Shape Shape
	// Generation identifies the tree; never 0.
	Generation uint64
	// Server is the number of this server. Servers is how many servers the tree has.
	Server, Servers int
	// Locks is the number of lock words on each server. HostLocks is true if they are in host
	// memory at LocksAt, not in the memory of the NIC.
	Locks     int
	HostLocks bool
	// PageLocks is true if the lock word of each page is in the page's last 8 bytes, and the tree
	// has no other lock words (Checksummed only).
	PageLocks bool
	// Chunk is the greatest number of bytes that a compute node takes from a server at a time, a
	// multiple of the length of a page.
	Chunk int
	// Len is how many bytes of the region belong to the tree.
	Len uint64
}

const (
	flagHostLocks = 1 << iota
	flagPageLocks
)

// ErrSuperblock means that the bytes are not a superblock.
var ErrSuperblock = errors.New("no tree in this memory: format one first")

// Validate returns an error for the first field that is out of range.
func (s *Superblock) Validate() error {
	if err := s.Shape.Validate(); err != nil {
		return err
	}
	switch {
	case s.Generation == 0:
		return fmt.Errorf("superblock: the generation is 0, so the memory holds no valid tree; run `rdmalab sherman start --fresh`")
	case s.Servers < 1 || s.Servers > MaxServers || s.Server < 0 || s.Server >= s.Servers:
		return fmt.Errorf("superblock: server %d of %d; want at most %d", s.Server, s.Servers, MaxServers)
	case s.Locks < 1 || s.Locks > MaxLockWords:
		return fmt.Errorf("superblock: %d lock words; want 1 to %d", s.Locks, MaxLockWords)
	case s.PageLocks && s.Shape.Kind != Checksummed:
		return fmt.Errorf("superblock: %v pages have no lock words", s.Shape.Kind)
	case s.Chunk < MinChunk || s.Chunk > MaxChunk || s.Chunk%s.Shape.Page != 0:
		return fmt.Errorf("superblock: chunks of %d bytes; want %d to %d, a multiple of the page", s.Chunk, MinChunk, MaxChunk)
	case s.Len > 1<<offsetBits:
		return fmt.Errorf("superblock: the memory has %d bytes; want at most %d", s.Len, uint64(1)<<offsetBits)
	case s.Len < s.FirstChunk()+uint64(s.Chunk):
		return fmt.Errorf("superblock: the memory has %d bytes; the first chunk needs %d", s.Len, s.FirstChunk()+uint64(s.Chunk))
	}
	return nil
}

// FirstChunk returns the offset at which the memory for pages begins.
func (s *Superblock) FirstChunk() uint64 {
	at := uint64(LocksAt)
	if s.HostLocks {
		at += uint64(8 * s.Locks)
	}
	return (at + MaxPage - 1) &^ (MaxPage - 1)
}

// Inside reports whether a can be the address of a page of the tree.
func (s *Superblock) Inside(a Addr) bool {
	return a != 0 && a.Server() < s.Servers && a.Offset() >= s.FirstChunk() && a.Offset()%uint64(s.Shape.Page) == 0 &&
		a.Offset()+uint64(s.Shape.Page) <= s.Len
}

// AppendTo appends the superblock to b, as SuperblockLen bytes.
func (s *Superblock) AppendTo(b []byte) []byte {
	at, le := len(b), binary.LittleEndian
	b = le.AppendUint64(b, superblock.Sherman)
	b = le.AppendUint64(b, s.Generation)
	b = le.AppendUint64(b, s.Len)
	b = le.AppendUint32(b, uint32(s.Chunk))
	b = le.AppendUint32(b, uint32(s.Locks))
	b = le.AppendUint32(b, uint32(s.Shape.Page))
	b = le.AppendUint16(b, uint16(s.Shape.Value))
	flags := byte(0)
	if s.HostLocks {
		flags |= flagHostLocks
	}
	if s.PageLocks {
		flags |= flagPageLocks
	}
	b = append(b, byte(s.Shape.Kind), flags)
	b = le.AppendUint16(b, uint16(s.Server))
	b = le.AppendUint16(b, uint16(s.Servers))
	b = append(b, make([]byte, SuperblockLen-4-(len(b)-at))...)
	return le.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// Parse parses what AppendTo wrote. Without an error, the superblock is valid.
func (s *Superblock) Parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < SuperblockLen || le.Uint64(b) != superblock.Sherman || le.Uint32(b[SuperblockLen-4:]) != crc32.Checksum(b[:SuperblockLen-4], castagnoli) {
		return ErrSuperblock
	}
	*s = Superblock{
		Generation: le.Uint64(b[8:]), Len: le.Uint64(b[16:]), Chunk: int(le.Uint32(b[24:])), Locks: int(le.Uint32(b[28:])),
		Shape:     Shape{Page: int(le.Uint32(b[32:])), Value: int(le.Uint16(b[36:])), Kind: Kind(b[38])},
		HostLocks: b[39]&flagHostLocks != 0, PageLocks: b[39]&flagPageLocks != 0, Server: int(le.Uint16(b[40:])), Servers: int(le.Uint16(b[42:])),
	}
	return s.Validate()
}

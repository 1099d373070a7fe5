package mem

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Far is the memory of another process: of a program whose work requests the NIC executes.
// Addresses are those of that process. The program may unmap its memory at any time, so each access
// may fail; it then returns false. An implementation must not keep the slices.
type Far interface {
	Read(p []byte, at uint64) bool
	Write(p []byte, at uint64) bool
}

// Piece is the memory that a key, an address and a length name, after the checks. It is valid only
// until the engine's next step.
type Piece struct {
	r      *Region // nil means that the length is 0
	off, n uint64
}

func (p Piece) Len() int { return int(p.n) }

// Zero reports whether the memory is in a zero-based region, which means device memory.
func (p Piece) Zero() bool { return p.r != nil && p.r.zero }

// near returns the memory as a slice; nil if it is far memory (see Far).
func (p Piece) near() []byte {
	if p.r == nil || p.r.far != nil {
		return nil
	}
	return p.r.buf[p.off : p.off+p.n : p.off+p.n]
}

// region returns a new Region over the memory of the piece, with these access rights. The caller
// sets its addresses and keys.
func (p Piece) region(access verbs.Access) Region {
	return Region{table: p.r.table, pd: p.r.pd, buf: p.near(), size: p.n, far: p.r.far, start: p.r.start + p.off, access: access}
}

// Read fills dst from offset off on. It returns false if the memory is far memory (see Far) and was
// unmapped.
func (p Piece) Read(dst []byte, off int) bool {
	switch {
	case len(dst) == 0:
	case p.r.far != nil:
		return p.r.far.Read(dst, p.r.start+p.off+uint64(off))
	default:
		copy(dst, p.r.buf[p.off+uint64(off):p.off+p.n])
	}
	return true
}

// Write copies src to offset off. It returns false if the memory is far memory (see Far) and was
// unmapped, at least in part.
func (p Piece) Write(src []byte, off int) bool {
	switch {
	case len(src) == 0:
	case p.r.far != nil:
		return p.r.far.Write(src, p.r.start+p.off+uint64(off))
	default:
		copy(p.r.buf[p.off+uint64(off):p.off+p.n], src)
	}
	return true
}

// CmpSwap stores swap in the piece, which has 8 bytes, if its value is compare. It returns the
// original value. All values are in host byte order. In all four atomics, ok is false if the memory
// is far memory (see Far) and was unmapped.
func (p Piece) CmpSwap(compare, swap uint64) (old uint64, ok bool) {
	if old, ok = p.load(); ok && old == compare {
		ok = p.Store64(swap)
	}
	return old, ok
}

// FetchAdd adds to the value of the piece, which has 8 bytes, and returns the original value. All
// values are in host byte order.
func (p Piece) FetchAdd(add uint64) (old uint64, ok bool) {
	if old, ok = p.load(); ok {
		ok = p.Store64(old + add)
	}
	return old, ok
}

// MaskedCmpSwap compares the bits of the piece, which has 8 bytes, that are set in compareMask with
// those of compare. If they are equal, it stores the bits of swap that are set in swapMask. It
// returns the original value. All values are in host byte order.
func (p Piece) MaskedCmpSwap(compare, compareMask, swap, swapMask uint64) (old uint64, ok bool) {
	if old, ok = p.load(); ok {
		ok = p.store(old, maskedCmpSwap(old, compare, compareMask, swap, swapMask))
	}
	return old, ok
}

// MaskedFetchAdd adds to each field of the piece, which has 8 bytes, and returns the original
// value. boundary has the highest bit of each field. All values are in host byte order.
func (p Piece) MaskedFetchAdd(add, boundary uint64) (old uint64, ok bool) {
	if old, ok = p.load(); ok {
		ok = p.store(old, maskedFetchAdd(old, add, boundary))
	}
	return old, ok
}

// Store64 writes the piece, which has 8 bytes, at once, so that no peer can read a part of it. v is
// in host byte order. It returns false if the memory is far memory (see Far) and was unmapped.
func (p Piece) Store64(v uint64) bool {
	if p.r.far == nil {
		binary.NativeEndian.PutUint64(p.near(), v)
		return true
	}
	b := p.r.table.word[:]
	binary.NativeEndian.PutUint64(b, v)
	return p.r.far.Write(b, p.r.start+p.off)
}

// load returns the word in the piece, which has 8 bytes.
func (p Piece) load() (uint64, bool) {
	if p.r.far == nil {
		return binary.NativeEndian.Uint64(p.near()), true
	}
	b := p.r.table.word[:]
	ok := p.r.far.Read(b, p.r.start+p.off)
	return binary.NativeEndian.Uint64(b), ok
}

// store writes v to the piece, which has the value old. If both are equal, it writes nothing. It
// returns false if the memory is far memory (see Far) and was unmapped.
func (p Piece) store(old, v uint64) bool { return old == v || p.Store64(v) }

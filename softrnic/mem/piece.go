package mem

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Far is memory outside of this process, by the address that its owner knows: that of a program
// whose work requests the NIC executes. Its pages come and go with the program, so each access may
// fail, with false. An implementation keeps none of the slices.
type Far interface {
	Read(p []byte, at uint64) bool
	Write(p []byte, at uint64) bool
	Load64(at uint64) (v uint64, ok bool)
	Store64(at, v uint64) bool
}

// Piece is the memory that a key, an address and a length name, after the checks. It must be used
// before the engine does anything else.
type Piece struct {
	r      *Region // nil: no bytes
	off, n uint64
}

// Len is the length in bytes.
func (p Piece) Len() int { return int(p.n) }

// near is the memory as a slice; nil if it is far.
func (p Piece) near() []byte {
	if p.r == nil || p.r.far != nil {
		return nil
	}
	return p.r.buf[p.off : p.off+p.n : p.off+p.n]
}

// region is a view of the piece, to which its maker gives addresses and keys.
func (p Piece) region(access verbs.Access) Region {
	return Region{table: p.r.table, pd: p.r.pd, buf: p.near(), size: p.n, far: p.r.far, start: p.r.start + p.off, access: access}
}

// Read fills dst from offset off on. False: the memory is far, and is there no more.
func (p Piece) Read(dst []byte, off int) bool {
	switch {
	case len(dst) == 0:
		return true
	case p.r.far != nil:
		return p.r.far.Read(dst, p.r.start+p.off+uint64(off))
	}
	copy(dst, p.near()[off:])
	return true
}

// Write puts src at offset off. False: the memory is far, and is there no more, or part of it.
func (p Piece) Write(src []byte, off int) bool {
	switch {
	case len(src) == 0:
		return true
	case p.r.far != nil:
		return p.r.far.Write(src, p.r.start+p.off+uint64(off))
	}
	copy(p.near()[off:], src)
	return true
}

// CmpSwap stores swap in the piece, which has 8 bytes, if it holds compare, and returns what it
// held. Host order.
func (p Piece) CmpSwap(compare, swap uint64) (old uint64, ok bool) {
	if p.r.far == nil {
		return cmpSwap(p.near(), compare, swap), true
	}
	at := p.r.start + p.off
	if old, ok = p.r.far.Load64(at); ok && old == compare {
		ok = p.r.far.Store64(at, swap)
	}
	return old, ok
}

// FetchAdd adds to the piece, which has 8 bytes, and returns what it held. Host order.
func (p Piece) FetchAdd(add uint64) (old uint64, ok bool) {
	if p.r.far == nil {
		return fetchAdd(p.near(), add), true
	}
	at := p.r.start + p.off
	if old, ok = p.r.far.Load64(at); ok {
		ok = p.r.far.Store64(at, old+add)
	}
	return old, ok
}

// MaskedCmpSwap stores the bits of swapMask of swap in the piece, which has 8 bytes, if its bits of
// compareMask are those of compare, and returns what it held. Host order.
func (p Piece) MaskedCmpSwap(compare, compareMask, swap, swapMask uint64) (old uint64, ok bool) {
	if old, ok = p.load(); ok {
		ok = p.store(old, maskedCmpSwap(old, compare, compareMask, swap, swapMask))
	}
	return old, ok
}

// MaskedFetchAdd adds to each field of the piece, which has 8 bytes, and returns what it held.
// boundary has the highest bit of each field. Host order.
func (p Piece) MaskedFetchAdd(add, boundary uint64) (old uint64, ok bool) {
	if old, ok = p.load(); ok {
		ok = p.store(old, maskedFetchAdd(old, add, boundary))
	}
	return old, ok
}

// Store64 replaces the word in the piece, which has 8 bytes, at once: no peer reads a part of it.
// Host order. False: the memory is far, and is there no more.
func (p Piece) Store64(v uint64) bool {
	if p.r.far != nil {
		return p.r.far.Store64(p.r.start+p.off, v)
	}
	binary.NativeEndian.PutUint64(p.near(), v)
	return true
}

// load returns the word in the piece, which has 8 bytes.
func (p Piece) load() (uint64, bool) {
	if p.r.far != nil {
		return p.r.far.Load64(p.r.start + p.off)
	}
	return binary.NativeEndian.Uint64(p.near()), true
}

// store replaces the word in the piece, unless it is the same.
func (p Piece) store(old, v uint64) bool {
	switch {
	case old == v:
	case p.r.far != nil:
		return p.r.far.Store64(p.r.start+p.off, v)
	default:
		binary.NativeEndian.PutUint64(p.near(), v)
	}
	return true
}

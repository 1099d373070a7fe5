package mem

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Region is registered memory: memory of the caller, or far memory (see Far). The Region belongs to
// the Table.
type Region struct {
	table   *Table
	pd      PD
	base    uint64
	buf     []byte // nil for far memory (see Far)
	size    uint64
	far     Far
	start   uint64 // address of the first byte of far memory in its process
	access  verbs.Access
	lkey    uint32 // 0 for the memory of a memory window, which has no L_Key
	rkey    uint32
	index   uint32   // index in the table
	owner   wire.QPN // for the memory of a bound window: the queue pair whose peer may use it; else 0
	windows int      // number of windows bound to it
	zero    bool     // zero-based: device memory, or a window to it
	valid   bool     // its keys are valid
	gone    bool     // deregistered
	// The fields view and whole are for fast registration. In a region for it, whose own keys are
	// never valid, view is the part that a work request has registered. This part has keys that are
	// valid while view.valid is set; its field whole points back to the region.
	view, whole *Region
}

// Base returns the virtual address of the first byte.
func (r *Region) Base() uint64 { return r.base }

func (r *Region) Len() int { return int(r.size) }

func (r *Region) Access() verbs.Access { return r.access }

// LKey returns the key for work requests of the region's own host. The key of a region for fast
// registration changes with each registration.
func (r *Region) LKey() uint32 { return r.lkey }

// RKey returns the key for peers.
func (r *Region) RKey() uint32 { return r.rkey }

// Valid reports whether the keys of the region can be used.
func (r *Region) Valid() bool { return r.valid || (r.view != nil && r.view.valid) }

// ReadAt copies len(p) bytes of the region, beginning at offset `off`, to p.
func (r *Region) ReadAt(p []byte, off int) error {
	b, err := r.span("read mr", off, len(p))
	if err == nil {
		copy(p, b)
	}
	return err
}

// WriteAt copies p into the region, beginning at offset `off`.
func (r *Region) WriteAt(p []byte, off int) error {
	b, err := r.span("write mr", off, len(p))
	if err == nil {
		copy(b, p)
	}
	return err
}

// Span returns the n bytes of the region from offset `off` on. They are the region's own memory,
// and no copy. The caller must not use them after the region was deregistered.
func (r *Region) Span(off, n int) ([]byte, error) { return r.span("read mr", off, n) }

// Load64 reads the aligned word at offset `off` in host byte order.
func (r *Region) Load64(off int) (uint64, error) {
	b, err := r.word("load mr", off)
	if err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(b), nil
}

// Store64 writes the aligned word at offset `off` in host byte order.
func (r *Region) Store64(off int, v uint64) error {
	b, err := r.word("store mr", off)
	if err == nil {
		binary.NativeEndian.PutUint64(b, v)
	}
	return err
}

func (r *Region) word(op string, off int) ([]byte, error) {
	if off%8 != 0 {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "offset %d is not a multiple of 8", off)
	}
	return r.span(op, off, 8)
}

// span returns n bytes at offset `off`, for an access by the program that registered the region.
// This program may still access an invalidated region, but not a deregistered one.
func (r *Region) span(op string, off, n int) ([]byte, error) {
	if r.gone {
		return nil, verbs.Errorf(op, verbs.ErrClosed, "the region was deregistered")
	}
	if r.far != nil {
		return nil, verbs.Errorf(op, verbs.ErrNotSupported, "the memory is another process's")
	}
	if off < 0 || n > len(r.buf) || off > len(r.buf)-n {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "bytes [%d,+%d) of a region of %d", off, n, len(r.buf))
	}
	return r.buf[off : off+n : off+n], nil
}

// maskedCmpSwap returns the value of a word after a masked CMP_SWAP.
func maskedCmpSwap(old, compare, compareMask, swap, swapMask uint64) uint64 {
	if (old^compare)&compareMask != 0 {
		return old
	}
	return old&^swapMask | swap&swapMask
}

// maskedFetchAdd returns the value of a word after a masked FETCH_ADD: the highest bit of each
// field is added without its carry.
func maskedFetchAdd(old, add, boundary uint64) uint64 {
	return (old&^boundary + add&^boundary) ^ (old^add)&boundary
}

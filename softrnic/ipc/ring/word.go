package ring

import (
	"sync/atomic"
	"unsafe"
)

// Shared is a word of shared memory. All operations on such words have one total order. A side
// first publishes entries, and then checks whether its peer sleeps. A side that goes to sleep first
// announces this, and then checks for entries. So at least one side sees what its peer has written,
// and no wake-up is lost.
type Shared struct{ atomic.Uint64 }

// WordAt returns the word at offset `off` of a mapping; `off` is a multiple of 8.
func WordAt(b []byte, off int) *Shared {
	_ = b[off+7]
	return (*Shared)(unsafe.Pointer(&b[off]))
}

// Store writes the word by an exchange. A plain atomic store costs the same. But with the race
// detector, a store to memory outside the heap is made without a fence. The processor may then
// execute a later load first, and a wake-up may be lost.
func (w *Shared) Store(v uint64) { w.Swap(v) }

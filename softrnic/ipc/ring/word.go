package ring

import (
	"sync/atomic"
	"unsafe"
)

// Shared is a word of shared memory. All operations on such words have one total order. So if one
// side publishes entries and then checks whether the other side sleeps, and the other side
// announces that it sleeps and then checks for entries, at least one of them sees what the other
// one has written, and no wake-up is lost.
type Shared struct{ v atomic.Uint64 }

// WordAt returns the word at offset `off` of a mapping; `off` is a multiple of 8.
func WordAt(b []byte, off int) *Shared {
	_ = b[off+7]
	return (*Shared)(unsafe.Pointer(&b[off]))
}

// Load reads the word.
func (w *Shared) Load() uint64 { return w.v.Load() }

// Store writes the word by an exchange. A plain atomic store costs the same. But with the race
// detector, a store to memory outside the heap is made without a fence. The processor may then
// execute a later load first, and a wake-up may be lost.
func (w *Shared) Store(v uint64) { w.v.Swap(v) }

// Swap writes the word and returns its former value.
func (w *Shared) Swap(v uint64) uint64 { return w.v.Swap(v) }

// Add adds to the word and returns the sum.
func (w *Shared) Add(n uint64) uint64 { return w.v.Add(n) }

// Or sets bits.
func (w *Shared) Or(bits uint64) { w.v.Or(bits) }

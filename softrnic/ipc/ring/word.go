package ring

import (
	"sync/atomic"
	"unsafe"
)

// Shared is a word of shared memory. All operations on such words have one order that both sides agree about: who publishes
// something and then looks whether the other side sleeps is seen by that one, or sees it sleep.
type Shared struct{ v atomic.Uint64 }

// Word is the aligned word at offset off of a mapping.
func Word(b []byte, off int) *Shared {
	_ = b[off+7]
	return (*Shared)(unsafe.Pointer(&b[off]))
}

// Load reads the word.
func (w *Shared) Load() uint64 { return w.v.Load() }

// Store writes the word. It is an exchange: a plain atomic store costs the same in a program as it is, but one that was built with
// the race detector makes a store to memory outside of the heap without a fence, and the processor then does a load that
// follows before it. A program slept for ever by that, once in a million times.
func (w *Shared) Store(v uint64) { w.v.Swap(v) }

// Swap writes the word and returns what was there.
func (w *Shared) Swap(v uint64) uint64 { return w.v.Swap(v) }

// Add adds to the word and returns the sum.
func (w *Shared) Add(n uint64) uint64 { return w.v.Add(n) }

// Or sets bits.
func (w *Shared) Or(bits uint64) { w.v.Or(bits) }

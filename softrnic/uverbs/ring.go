package uverbs

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Offsets in the header of a ring (rxe_queue_buf), the header's length, and the length of a page,
// in bytes.
const (
	offLog2     = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256
	ringHeader  = 384
	pageLen     = 4096
)

// Ring is a ring of the rxe driver in shared memory. The daemon uses its own copy of the size and
// masks the indices that it reads, so that each index is inside the ring.
type Ring struct {
	b    []byte
	mask uint32 // for indices: the number of slots, a power of two, minus one
	log2 uint   // binary logarithm of the length of an entry
}

// shape returns the mask for the indices of a ring of n entries, and the binary logarithm of an
// entry's size.
func shape(n, entry int) (mask uint32, log2 uint) {
	return 1<<bits.Len(uint(n)) - 1, uint(bits.Len(uint(entry - 1)))
}

// RingLen returns the size of a ring of at least n entries of `entry` bytes each. The size is in
// bytes, and a multiple of the page size.
func RingLen(n, entry int) int {
	mask, log2 := shape(n, entry)
	return (ringHeader + int(mask+1)<<log2 + pageLen - 1) &^ (pageLen - 1)
}

// NewRing makes an empty ring of at least n entries in b, which has RingLen bytes.
func NewRing(b []byte, n, entry int) Ring {
	mask, log2 := shape(n, entry)
	r := Ring{b, mask, log2}
	r.word(offLog2).Store(uint32(log2))
	r.word(offMask).Store(mask)
	r.SetProducer(0)
	r.SetConsumer(0)
	return r
}

func (r Ring) word(off int) *atomic.Uint32 {
	_ = r.b[off+3]
	return (*atomic.Uint32)(unsafe.Pointer(&r.b[off]))
}

// Cap returns how many entries the ring can hold: one less than it has slots.
func (r Ring) Cap() int { return int(r.mask) }

// Producer returns the index of the next entry to be written.
func (r Ring) Producer() uint32 { return r.word(offProducer).Load() & r.mask }

// Consumer returns the index of the oldest entry.
func (r Ring) Consumer() uint32 { return r.word(offConsumer).Load() & r.mask }

func (r Ring) SetProducer(i uint32) { r.word(offProducer).Store(i & r.mask) }

func (r Ring) SetConsumer(i uint32) { r.word(offConsumer).Store(i & r.mask) }

// Between returns the number of entries from index a to index b.
func (r Ring) Between(a, b uint32) int { return int((b - a) & r.mask) }

// SlotLen returns the length of an entry in bytes.
func (r Ring) SlotLen() int { return 1 << r.log2 }

// Slot returns the memory of an entry. The program may write to it at any time.
func (r Ring) Slot(i uint32) []byte {
	at := ringHeader + int(i&r.mask)<<r.log2
	return r.b[at : at+1<<r.log2 : at+1<<r.log2]
}

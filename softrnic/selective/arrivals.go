package selective

import "math/bits"

// Arrivals is the bitmap of a receiver: which packets behind the expected one have arrived. Offset 0
// is the expected packet.
type Arrivals struct {
	words []uint64 // a ring of bits; the number of bits is a power of two
	first int      // the bit of offset 0
	count int
}

// NewArrivals returns a bitmap of at least size packets, and at least 64.
func NewArrivals(size int) *Arrivals {
	n := 64
	for n < size {
		n *= 2
	}
	return &Arrivals{words: make([]uint64, n/64)}
}

// Size returns the number of packets for which there is room.
func (a *Arrivals) Size() int { return len(a.words) * 64 }

// Count returns how many packets have arrived ahead.
func (a *Arrivals) Count() int { return a.count }

// Place returns the index of offset off in a ring of Size entries, which the caller may keep beside
// the bitmap. It stays the same while the packet is ahead.
func (a *Arrivals) Place(off int) int { return (a.first + off) & (a.Size() - 1) }

// Has reports whether the packet at offset off has arrived. Offsets at or beyond Size have not.
func (a *Arrivals) Has(off int) bool {
	if off < 0 || off >= a.Size() {
		return false
	}
	i := a.Place(off)
	return a.words[i/64]>>(i%64)&1 != 0
}

// Mark records that the packet at offset off, below Size, has arrived. It returns false if it had
// arrived before.
func (a *Arrivals) Mark(off int) bool {
	if a.Has(off) {
		return false
	}
	i := a.Place(off)
	a.words[i/64] |= 1 << (i % 64)
	a.count++
	return true
}

// Run returns how many packets directly before offset off have arrived, at most most.
func (a *Arrivals) Run(off, most int) int {
	n := 0
	for n < most && n < off && a.Has(off-n-1) {
		n++
	}
	return n
}

// Advance moves the expected packet n packets on, and forgets those that it passes.
func (a *Arrivals) Advance(n int) {
	switch {
	case a.count == 0:
		return // there is nothing to move, and no other offset has a meaning
	case n >= a.Size():
		a.Clear()
		return
	}
	for range n {
		w, bit := &a.words[a.first/64], uint64(1)<<(a.first%64)
		if *w&bit != 0 {
			*w &^= bit
			a.count--
		}
		a.first = (a.first + 1) & (a.Size() - 1)
	}
}

// Clear forgets all packets.
func (a *Arrivals) Clear() {
	clear(a.words)
	a.count = 0
}

// counted returns the number of bits that are set, which tests compare with Count.
func (a *Arrivals) counted() (n int) {
	for _, w := range a.words {
		n += bits.OnesCount64(w)
	}
	return n
}

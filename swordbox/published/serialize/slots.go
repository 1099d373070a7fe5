package serialize

import (
	"math/bits"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const wordBits = 64

// slots is the set of the places in a ring whose requests have no answer. With it, an
// acknowledgement need not look at all entries of the ring.
type slots [ringSize / wordBits]uint64

func (s *slots) add(at wire.PSN) { s[at%ringSize/wordBits] |= 1 << (at % wordBits) }

func (s *slots) remove(at wire.PSN) { s[at%ringSize/wordBits] &^= 1 << (at % wordBits) }

func (s *slots) has(at wire.PSN) bool { return s[at%ringSize/wordBits]>>(at%wordBits)&1 != 0 }

// next returns the first place of the set that is not before i; ringSize if there is none.
func (s *slots) next(i int) int {
	for ; i < ringSize; i = i/wordBits*wordBits + wordBits {
		if w := s[i/wordBits] >> (i % wordBits); w != 0 {
			return i + bits.TrailingZeros64(w)
		}
	}
	return ringSize
}

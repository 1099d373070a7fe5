package mem

import "math/rand/v2"

// keySpace converts the index of a region in its table to the upper 24 bits of its keys, and back.
// It is a permutation, which the numbers in rounds determine: keys of regions that follow each
// other look random. They protect against mistakes of peers, not against a patient attacker.
type keySpace struct{ rounds [keyRounds]uint32 }

const (
	keyRounds = 3 // rounds of a Feistel network over two halves
	halfBits  = 12
	halfMask  = 1<<halfBits - 1
)

func newKeySpace(r *rand.Rand) (k keySpace) {
	for i := range k.rounds {
		k.rounds[i] = r.Uint32() | 1
	}
	return k
}

// mix is the round function of the Feistel network by which keySpace permutes indexes. The upper
// bits of the product depend on all bits of x and of round.
func mix(x, round uint32) uint32 { return (x + round>>16) * round >> (32 - halfBits) }

// other returns a different permutation that is derived from the same seed.
func (k keySpace) other() keySpace {
	for i := range k.rounds {
		k.rounds[i] ^= 0x9e3779b8 // an even number, so that the rounds stay odd
	}
	return k
}

// toKey returns the upper part of the keys of index i.
func (k *keySpace) toKey(i uint32) uint32 {
	left, right := i>>halfBits, i&halfMask
	for _, r := range k.rounds {
		left, right = right, left^mix(right, r)
	}
	return left<<halfBits | right
}

// fromKey is the inverse of toKey.
func (k *keySpace) fromKey(key uint32) uint32 {
	left, right := key>>halfBits&halfMask, key&halfMask
	for i := keyRounds - 1; i >= 0; i-- {
		left, right = right^mix(left, k.rounds[i]), left
	}
	return left<<halfBits | right
}

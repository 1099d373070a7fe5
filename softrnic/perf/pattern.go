package perf

import (
	"encoding/binary"
	"math/bits"
)

// Pattern generates the content of messages from a seed: each 64-bit word is a function of the
// message's number and of the word's position in it.
type Pattern struct{ Seed uint64 }

// Odd constants that make words of different messages and positions differ.
const (
	patternStep = 0x9e3779b97f4a7c15
	patternMix  = 0xbf58476d1ce4e5b9
)

func (p Pattern) base(msg uint64) uint64 {
	x := (p.Seed ^ (msg+1)*patternStep) * patternMix
	x ^= x >> 31
	x *= patternStep
	return x ^ x>>29
}

// Fill writes the content of message msg into b.
func (p Pattern) Fill(b []byte, msg uint64) {
	w := p.base(msg)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, w)
		w += patternStep
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(w >> (8 * i))
	}
}

// Check returns the offset of the first byte of b that differs from message msg, or -1.
func (p Pattern) Check(b []byte, msg uint64) int {
	w := p.base(msg)
	n := len(b)
	for len(b) >= 8 {
		if got := binary.LittleEndian.Uint64(b); got != w {
			return n - len(b) + bits.TrailingZeros64(got^w)/8
		}
		w += patternStep
		b = b[8:]
	}
	for i := range b {
		if b[i] != byte(w>>(8*i)) {
			return n - len(b) + i
		}
	}
	return -1
}

package portqueue

import "math/bits"

// marks decides whether a packet is marked while `queued` bytes wait. draw is a random number of 32
// bits.
func (r *RED) marks(queued int64, draw uint32) bool {
	switch {
	case queued <= int64(r.KMin):
		return false
	case queued > int64(r.KMax):
		return true
	}
	// The share is PMax·(queued−KMin)/(KMax−KMin) millionths, here in units of 2^-32. The high word is
	// smaller than the divisor, because queued-KMin is at most KMax-KMin and PMax at most a million; if
	// both are equal the quotient would be 2^32, so certainty is a case of its own.
	part, whole := uint64(r.PMax)*uint64(queued-int64(r.KMin)), uint64(Million)*uint64(r.KMax-r.KMin)
	if part >= whole {
		return true
	}
	hi, lo := bits.Mul64(part, 1<<32)
	share, _ := bits.Div64(hi, lo, whole)
	return uint64(draw) < share
}

// draw returns random number `index` of a stream (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
func draw(stream, index uint64) uint32 {
	x := stream + (index+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32((x ^ x>>31) >> 32)
}

package fault

// mix is the last step of splitmix64: each input bit changes each output bit with probability one
// half.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// golden is the odd constant that splitmix64 adds to its counter.
const golden = 0x9e3779b97f4a7c15

// hashString combines hash h with string s (FNV-1a, then mix).
func hashString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h + golden)
}

// draw returns the n-th random number of a stream. It does not have to compute the earlier ones.
func draw(stream, n uint64) uint64 { return mix(stream + (n+1)*golden) }

// unit converts a draw to a number in [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }

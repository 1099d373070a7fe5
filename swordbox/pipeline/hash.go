package pipeline

// Hash spreads the keys of tables over all bits: the finaliser of MurmurHash3.
func Hash(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

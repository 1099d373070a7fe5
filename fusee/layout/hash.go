package layout

type Hash struct {
	// bits chooses the subtable, the fingerprint, the first bucket and, in the published format,
	// also the second one. other is an independent hash, which chooses the second bucket in the
	// hardened format.
	bits, other uint64
}

// HashOf returns the hash of a key. (The published code uses the family of xxhash. Any hash works
// if all clients use the same one.)
func HashOf(key uint64) Hash {
	return Hash{mix(key + 0x9e3779b97f4a7c15), mix(key ^ 0xd6e8feb86659fd93)}
}

// mix is the finalizer of SplitMix64, a function that distributes numbers evenly.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Prefix returns the part of the hash that the directory uses. A subtable of depth d has the keys
// whose prefixes have the same lowest d bits.
func (h Hash) Prefix() uint32 { return uint32(h.bits >> 32) }

// Fingerprint returns the byte of the hash that a slot contains. A client reads an object only if
// the slot has the fingerprint of the key. So it reads few objects of other keys.
func (h Hash) Fingerprint() byte { return byte(h.bits>>48) ^ byte(h.bits>>56) }

// Buckets returns the indices of the two main buckets of a hash, in a subtable with an even number,
// mains, of main buckets. The first is in the lower half of the subtable, the second in the upper
// half.
func (f Format) Buckets(h Hash, mains int) (first, second int) {
	half := uint64(mains / 2)
	if f == Hardened {
		return int(h.bits % half), int(half + h.other%half)
	}
	one := h.bits % half
	tag := uint64(uint16(h.bits)) | 1
	return int(one), int(half + (one^tag*0xc6a4a7935bd1e995)%half)
}

// firstOf returns the number of the first bucket of a combined bucket. main is the index of its
// main bucket. Groups of buckets are main, overflow, main.
func firstOf(main int) int { return main/2*3 + main%2 }

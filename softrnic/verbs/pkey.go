package verbs

import "slices"

// PKeyMember is the bit of a P_Key that makes a port a full member of its partition; the other 15
// bits are the partition's number, which is not 0. Full members communicate with all members of
// their partition, limited members only with full members.
const PKeyMember uint16 = 1 << 15

// SamePartition reports whether packets may pass between ports with these P_Keys. Both must name
// the same valid partition, and at least one must make its port a full member (IBTA 10.9.3).
func SamePartition(a, b uint16) bool {
	partition := a &^ PKeyMember
	return partition == b&^PKeyMember && partition != 0 && (a|b)&PKeyMember != 0
}

// PKeyIndex returns the index of the entry in a P_Key table that can communicate with a peer's
// P_Key; false if there is none.
func PKeyIndex(table []uint16, pkey uint16) (int, bool) {
	i := slices.IndexFunc(table, func(own uint16) bool { return SamePartition(own, pkey) })
	return max(i, 0), i >= 0
}

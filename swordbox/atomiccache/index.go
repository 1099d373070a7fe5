package atomiccache

// index is a hash table with linear probing. It maps a key to the number of a slot, plus one; 0
// means that the key is not in the index. It grows by doubling and never shrinks, so it allocates
// nothing once the Table no longer grows. Removal closes the gap and leaves no tombstone.
type index struct {
	entries []entry // their number is a power of two, and at most half of them are in use
	n       int
}

type entry struct {
	key  Key
	slot uint32
}

const minIndex = 64

func (x *index) home(k Key) int {
	h := (k.VA>>3 ^ uint64(k.Server)<<48 ^ k.VA<<61) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int(h>>32) & (len(x.entries) - 1)
}

// find returns the position of k, or the free position at which k would be inserted.
func (x *index) find(k Key) int {
	i := x.home(k)
	for x.entries[i].slot != 0 && x.entries[i].key != k {
		i = (i + 1) & (len(x.entries) - 1)
	}
	return i
}

func (x *index) get(k Key) uint32 {
	if x.n == 0 {
		return 0
	}
	return x.entries[x.find(k)].slot
}

func (x *index) put(k Key, slot uint32) {
	if 2*(x.n+1) > len(x.entries) {
		old := x.entries
		x.entries = make([]entry, max(minIndex, 2*len(old)))
		for _, e := range old {
			if e.slot != 0 {
				x.entries[x.find(e.key)] = e
			}
		}
	}
	i := x.find(k)
	if x.entries[i].slot == 0 {
		x.n++
	}
	x.entries[i] = entry{k, slot}
}

func (x *index) remove(k Key) {
	if x.n == 0 {
		return
	}
	i := x.find(k)
	if x.entries[i].slot == 0 {
		return
	}
	x.n--
	mask := len(x.entries) - 1
	for j := (i + 1) & mask; x.entries[j].slot != 0; j = (j + 1) & mask {
		// An entry may fill the gap unless its home is after the gap.
		if (j-x.home(x.entries[j].key))&mask >= (j-i)&mask {
			x.entries[i] = x.entries[j]
			i = j
		}
	}
	x.entries[i] = entry{}
}

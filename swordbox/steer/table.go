package steer

// ways is how many places there are for an entry.
const ways = 4

// id is what entries are found by: an address or a key, and the life of the memory that it means something in.
type id struct {
	n    uint64
	life uint32
}

// table is a bounded map whose entries do not move; a new one takes the place of one of four, the one that was used
// longest ago. Its memory is allocated at once.
type table[V any] struct {
	slots []slot[V]
	mask  uint64
	tick  uint64
}

type slot[V any] struct {
	id   id
	used uint64 // when; 0: free
	v    V
}

// newTable makes a table of at least n entries.
func newTable[V any](n int) table[V] {
	slots := places(n)
	return table[V]{slots: make([]slot[V], slots), mask: uint64(slots/ways - 1)}
}

// places is how many places a table of at least n entries has.
func places(n int) int {
	buckets := 1
	for buckets*ways < n {
		buckets *= 2
	}
	return buckets * ways
}

// bucket is the places of an entry (the finaliser of MurmurHash3 spreads addresses).
func (t *table[V]) bucket(k id) []slot[V] {
	h := k.n ^ uint64(k.life)<<48
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	i := (h ^ h>>33) & t.mask * ways
	return t.slots[i : i+ways]
}

// find returns an entry; nil if it is not there. The pointer is good until the next put.
func (t *table[V]) find(k id) *V {
	b := t.bucket(k)
	for i := range b {
		if b[i].used != 0 && b[i].id == k {
			t.tick++
			b[i].used = t.tick
			return &b[i].v
		}
	}
	return nil
}

// put returns the entry, a zero one if it was not there; nil if all its places are taken by entries that must stay.
// evicted says that another one went.
func (t *table[V]) put(k id, stays func(*V) bool) (v *V, evicted bool) {
	if v = t.find(k); v != nil {
		return v, false
	}
	b := t.bucket(k)
	best := -1
	for i := range b {
		if b[i].used != 0 && stays != nil && stays(&b[i].v) {
			continue
		}
		if best < 0 || b[i].used < b[best].used {
			best = i
		}
	}
	if best < 0 {
		return nil, false
	}
	evicted = b[best].used != 0
	t.tick++
	b[best] = slot[V]{id: k, used: t.tick}
	return &b[best].v, evicted
}

// remove forgets an entry and reports whether it was there.
func (t *table[V]) remove(k id) bool {
	b := t.bucket(k)
	for i := range b {
		if b[i].used != 0 && b[i].id == k {
			b[i] = slot[V]{}
			return true
		}
	}
	return false
}

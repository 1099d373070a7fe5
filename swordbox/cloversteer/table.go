package cloversteer

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// ways is the number of slots that an entry may be in.
const ways = 4

// id names an entry: an address with the incarnation of the memory, or a key with the incarnation
// of the store.
type id struct {
	n           uint64
	incarnation uint32
}

// hash spreads addresses and keys over the buckets.
func (k id) hash() uint64 { return pipeline.Hash(k.n ^ uint64(k.incarnation)<<48) }

// table is a bounded map whose entries do not move. An entry may be in one of four slots; a new
// entry replaces the least recently used one of the four that is not pinned (see put). newTable
// allocates all memory.
type table[V any] struct {
	slots []slot[V]
	mask  uint64
	tick  uint64
}

type slot[V any] struct {
	id   id
	used uint64 // tick of the last use; 0 means that the slot is free
	v    V
}

func newTable[V any](n int) table[V] {
	slots := capacity(n)
	return table[V]{slots: make([]slot[V], slots), mask: uint64(slots/ways - 1)}
}

// capacity is the number of slots of a table of at least n entries.
func capacity(n int) int {
	buckets := 1
	for buckets*ways < n {
		buckets *= 2
	}
	return buckets * ways
}

// bucket returns the slots that the entry of k may be in.
func (t *table[V]) bucket(k id) []slot[V] {
	i := k.hash() & t.mask * ways
	return t.slots[i : i+ways]
}

// find returns the entry of k; nil if it is not there. The pointer is valid until the next put.
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

// put returns the entry of k, and adds a zero one if there is none. It returns nil if pinned
// entries occupy all slots of k. evicted is true if put has removed another entry to make room.
func (t *table[V]) put(k id, pinned func(*V) bool) (v *V, evicted bool) {
	if v = t.find(k); v != nil {
		return v, false
	}
	b := t.bucket(k)
	best := -1
	for i := range b {
		if b[i].used != 0 && pinned != nil && pinned(&b[i].v) {
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

func (t *table[V]) remove(k id) {
	b := t.bucket(k)
	for i := range b {
		if b[i].used != 0 && b[i].id == k {
			b[i] = slot[V]{}
		}
	}
}

// removeAll deletes the entries for which match returns true, and returns how many there were.
func (t *table[V]) removeAll(match func(k id, v *V) bool) int {
	n := 0
	for i := range t.slots {
		if s := &t.slots[i]; s.used != 0 && match(s.id, &s.v) {
			*s = slot[V]{}
			n++
		}
	}
	return n
}

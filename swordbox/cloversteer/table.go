package cloversteer

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// ways is the number of slots of a bucket. An entry may be in one of two buckets.
const ways = 4

// id names an entry: an address with the incarnation of the memory, or a key with the incarnation
// of the store.
type id struct {
	n           uint64
	incarnation uint32
}

// hash spreads addresses and keys over the buckets.
func (k id) hash() uint64 { return pipeline.Hash(k.n ^ uint64(k.incarnation)<<48) }

// table is a bounded map whose entries do not move. An entry may be in one of two buckets of four
// slots. A new entry goes to the bucket with more free slots; if there is none, it replaces the least
// recently used entry of both that is not pinned (see put). With one bucket for each entry, a table
// that is a quarter full has buckets with more entries than slots, and these would replace each other
// all the time. newTable allocates all memory.
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

// buckets returns the slots that the entry of k may be in. The two buckets may be the same one.
func (t *table[V]) buckets(k id) [2][]slot[V] {
	h := k.hash()
	i, j := h&t.mask*ways, h>>32&t.mask*ways
	return [2][]slot[V]{t.slots[i : i+ways], t.slots[j : j+ways]}
}

// find returns the entry of k; nil if it is not there. The pointer is valid until the next put.
func (t *table[V]) find(k id) *V {
	if s := t.slot(k); s != nil {
		t.tick++
		s.used = t.tick
		return &s.v
	}
	return nil
}

// slot returns the slot of the entry of k; nil if it is not there.
func (t *table[V]) slot(k id) *slot[V] {
	for _, b := range t.buckets(k) {
		for i := range b {
			if b[i].used != 0 && b[i].id == k {
				return &b[i]
			}
		}
	}
	return nil
}

// place returns the slot for a new entry of k: a free one in the bucket with more of them, or that
// of the least recently used entry which is not pinned. nil means that all entries are pinned.
func (t *table[V]) place(k id, pinned func(*V) bool) (best *slot[V]) {
	most := 0
	var free *slot[V]
	for _, b := range t.buckets(k) {
		n := 0
		var first *slot[V]
		for i := range b {
			switch s := &b[i]; {
			case s.used == 0:
				if n++; first == nil {
					first = s
				}
			case pinned != nil && pinned(&s.v):
			case best == nil || s.used < best.used:
				best = s
			}
		}
		if n > most {
			most, free = n, first
		}
	}
	if free != nil {
		return free
	}
	return best
}

// put returns the entry of k, and adds a zero one if there is none. It returns nil if pinned
// entries occupy all slots of k. evicted is true if put has removed another entry to make room.
func (t *table[V]) put(k id, pinned func(*V) bool) (v *V, evicted bool) {
	if v = t.find(k); v != nil {
		return v, false
	}
	s := t.place(k, pinned)
	if s == nil {
		return nil, false
	}
	evicted = s.used != 0
	t.tick++
	*s = slot[V]{id: k, used: t.tick}
	return &s.v, evicted
}

func (t *table[V]) remove(k id) {
	if s := t.slot(k); s != nil {
		*s = slot[V]{}
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

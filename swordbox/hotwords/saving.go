package hotwords

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// saving is a Space-Saving table: at most n keys with their counts. It allocates memory only when
// it is made.
//
// heap holds the entries as a heap by count, the smallest first. places is a hash table with linear
// probing: it maps a key to the place of its entry in heap. It is at most half full.
type saving struct {
	heap   []entry
	places []int32 // index into heap plus 1; 0 means empty
	mask   uint64  // len(places) - 1
}

// entry is a key in the table.
type entry struct {
	key         uint64
	count, over uint64        // over is by how much count can be too large
	kinds       [kinds]uint64 // requests of each kind since the key came into the table
	slot        uint32        // index of the key's place in saving.places
	tag         uint32        // number of the entry, which a key takes over together with the count
}

// added is what addAmount did: it added to the entry with this tag. fresh is true if the key was not
// in the table before, taken if it has replaced another one.
type added struct {
	tag          uint32
	fresh, taken bool
}

// Kinds of requests.
const (
	kindRead = iota
	kindWrite
	kindAtomic
	kinds
)

func newSaving(n int) *saving {
	size := 4
	for size < 2*n {
		size *= 2
	}
	return &saving{heap: make([]entry, 0, n), places: make([]int32, size), mask: uint64(size - 1)}
}

// add counts one request for a key. taken is true if the key has replaced another one in the table.
func (s *saving) add(key uint64, kind int) (taken bool) { return s.addAmount(key, kind, 1).taken }

// addAmount adds an amount to the count of a key.
func (s *saving) addAmount(key uint64, kind int, amount uint64) (a added) {
	slot, at := s.find(key)
	switch {
	case at >= 0:
	case len(s.heap) < cap(s.heap):
		at = len(s.heap)
		s.heap = append(s.heap, entry{key: key, slot: slot, tag: uint32(at)})
		s.places[slot] = int32(at + 1)
		at, a.fresh = s.up(at), true
	default:
		least := s.heap[0]
		s.remove(least.slot)
		slot, _ = s.find(key) // the removal may have moved the free slot
		s.heap[0] = entry{key: key, count: least.count, over: least.count, slot: slot, tag: least.tag}
		s.places[slot] = 1
		at, a.fresh, a.taken = 0, true, true
	}
	e := &s.heap[at]
	e.count += amount
	e.kinds[kind] += amount
	a.tag = e.tag
	s.down(at)
	return a
}

func (s *saving) clear() {
	s.heap = s.heap[:0]
	clear(s.places)
}

// find returns the slot of a key, and its place in the heap. If the key is not in the table, `at`
// is -1 and `slot` is a free slot for it.
func (s *saving) find(key uint64) (slot uint32, at int) {
	for i := pipeline.Hash(key) & s.mask; ; i = (i + 1) & s.mask {
		p := s.places[i]
		if p == 0 {
			return uint32(i), -1
		}
		if s.heap[p-1].key == key {
			return uint32(i), int(p - 1)
		}
	}
}

// remove frees a slot of places. It moves later keys forward, so that a search still finds them.
func (s *saving) remove(slot uint32) {
	hole := uint64(slot)
	for i := (hole + 1) & s.mask; s.places[i] != 0; i = (i + 1) & s.mask {
		e := &s.heap[s.places[i]-1]
		if (i-pipeline.Hash(e.key))&s.mask >= (i-hole)&s.mask {
			s.places[hole], e.slot = s.places[i], uint32(hole)
			hole = i
		}
	}
	s.places[hole] = 0
}

// up and down restore the heap around entry i, whose count has changed. up returns the new place of
// the entry.
func (s *saving) up(i int) int {
	for i > 0 && s.heap[i].count < s.heap[(i-1)/2].count {
		s.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (s *saving) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s.heap); c++ {
			if s.heap[c].count < s.heap[least].count {
				least = c
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

func (s *saving) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.places[s.heap[i].slot], s.places[s.heap[j].slot] = int32(i+1), int32(j+1)
}

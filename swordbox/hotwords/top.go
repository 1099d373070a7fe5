package hotwords

import (
	"cmp"
	"slices"
)

// Top is a Space-Saving table of keys of type K: it keeps at most n keys with their counts, among
// them every key whose count is more than 1/n of all. It allocates memory only when it is made.
type Top[K any] struct {
	saving *saving
	keys   []K // by entry.tag
}

// Ranked is a key of a Top. Its count is at most Count, and at least Count - Over.
type Ranked[K any] struct {
	Key         K
	Count, Over uint64
}

// NewTop makes an empty table for n keys.
func NewTop[K any](n int) *Top[K] { return &Top[K]{newSaving(n), make([]K, n)} }

// Add adds an amount to the count of a key, whose hash is `hash`. Different keys must have different
// hashes.
func (t *Top[K]) Add(hash uint64, key *K, amount uint64) {
	at := t.saving.addAmount(hash, 0, amount)
	if at.fresh {
		t.keys[at.tag] = *key
	}
}

// Len returns how many keys the table has.
func (t *Top[K]) Len() int { return len(t.saving.heap) }

// All returns the keys, those with the highest counts first.
func (t *Top[K]) All() []Ranked[K] {
	list := make([]Ranked[K], 0, t.Len())
	for _, e := range t.saving.heap {
		list = append(list, Ranked[K]{t.keys[e.tag], e.count, e.over})
	}
	slices.SortStableFunc(list, func(a, b Ranked[K]) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

// Clear removes all keys.
func (t *Top[K]) Clear() { t.saving.clear() }

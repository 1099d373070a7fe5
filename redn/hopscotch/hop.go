package hopscotch

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/redn"
)

// maxSearch is the number of buckets that an insertion looks at, at most, in search of an empty one.
const maxSearch = 4096

// hop is a bucket that a search has reached. Its entry would get there from bucket path[from], or
// it is the new key that takes it if from is -1.
type hop struct{ bucket, from int }

// room returns an empty bucket of a key's. If there is none, entries hop: room searches breadth first,
// so it finds the smallest number of hops. It prefers hops that need no Wait.
func (t *Table) room(key redn.Operand) (int, error) {
	i := t.search(key, false)
	if i < 0 && t.Wait != nil {
		i = t.search(key, true)
	}
	if i < 0 {
		return 0, fmt.Errorf("%w: no empty bucket among %d", ErrFull, len(t.path))
	}
	return t.hop(i)
}

// search returns the index of an empty bucket in the path that it makes, or -1. Entries hop only to
// buckets that lookups probe later unless back is true.
func (t *Table) search(key redn.Operand, back bool) int {
	clear(t.seen)
	t.path = t.path[:0]
	t.reach(key, 0, -1)
	for i := 0; i < len(t.path) && i < maxSearch; i++ {
		b := t.path[i].bucket
		e := t.buckets[b]
		switch {
		case e.key == 0:
			return i
		case back:
			t.reach(e.key, 0, i)
		default:
			t.reach(e.key, t.nth(e.key, b)+1, i)
		}
	}
	return -1
}

// nth returns which of a key's buckets b is; 0 is the first that lookups probe.
func (t *Table) nth(key redn.Operand, b int) int {
	t.may = t.shape.Buckets(t.may[:0], key)
	if i := slices.Index(t.may, b); i >= 0 {
		return i
	}
	panic(fmt.Sprintf("hopscotch: key %#x is in bucket %d, and may be in %d", uint64(key), b, t.may))
}

// reach appends to the path the buckets of a key, from the one with number first on.
func (t *Table) reach(key redn.Operand, first, from int) {
	t.may = t.shape.Buckets(t.may[:0], key)
	for _, b := range t.may[first:] {
		if _, ok := t.seen[b]; !ok {
			t.seen[b] = struct{}{}
			t.path = append(t.path, hop{b, from})
		}
	}
}

// hop moves the entries of the path to the empty bucket path[i], the last one first. It returns the
// first bucket, which it leaves as it is: the new key overwrites the entry that is already in its
// new bucket.
func (t *Table) hop(i int) (int, error) {
	for ; t.path[i].from >= 0; i = t.path[i].from {
		from, to := t.path[t.path[i].from].bucket, t.path[i].bucket
		e := t.buckets[from]
		if err := t.set(to, e); err != nil {
			return 0, err
		}
		t.hops++
		if t.nth(e.key, to) < t.nth(e.key, from) {
			t.Wait()
		}
	}
	return t.path[i].bucket, nil
}

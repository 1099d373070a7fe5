package lookuptable

import "testing"

// inSet returns n keys with their hashes that share a set of a cache of 8 entries.
func inSet(n int) (keys []Key, hashes []uint64) {
	c := newCache(8)
	for i := 0; len(keys) < n; i++ {
		k := keyOf(i)
		if h := k.Hash(); &c.set(h)[0] == &c.places[0] {
			keys, hashes = append(keys, k), append(hashes, h)
		}
	}
	return keys, hashes
}

// has returns the DSCPs of the actions that the cache has for keys; 0: none.
func (c *cache) has(keys []Key, hashes []uint64) (list []uint8) {
	for i := range keys {
		x := uint8(0)
		for _, p := range c.places {
			if p.used != 0 && p.Key == keys[i] {
				x = p.Action.DSCP
			}
		}
		list = append(list, x)
	}
	return list
}

// A set of the cache keeps four entries. A fifth one takes the place of the one that was used least
// recently; an entry that is there already is replaced, and takes no further place.
func TestLeastRecentlyUsedEntryLeavesTheCache(t *testing.T) {
	keys, hashes := inSet(6)
	c := newCache(8)
	put := func(i int, dscp uint8) { c.put(&keys[i], &Action{Ops: OpDSCP, DSCP: dscp}, hashes[i]) }
	get := func(i int) uint8 {
		e := c.get(&keys[i], hashes[i])
		if e == nil {
			return 0
		}
		return e.Action.DSCP
	}
	want := func(when string, list ...uint8) {
		t.Helper()
		n := 0
		for i, x := range c.has(keys, hashes) {
			if x != list[i] {
				t.Errorf("%s: %v, want %v", when, c.has(keys, hashes), list)
				break
			}
			if x != 0 {
				n++
			}
		}
		if c.len() != n {
			t.Errorf("%s: %d entries, want %d", when, c.len(), n)
		}
	}
	for i := range 4 {
		put(i, uint8(10+i))
	}
	want("four entries", 10, 11, 12, 13, 0, 0)
	if a, b := get(0), get(3); a != 10 || b != 13 {
		t.Errorf("found %d and %d", a, b)
	}
	put(4, 14)
	want("a fifth one", 10, 0, 12, 13, 14, 0)
	put(2, 22)
	want("a new action", 10, 0, 22, 13, 14, 0)
	put(5, 15)
	want("a sixth one", 0, 0, 22, 13, 14, 15)
	if get(0) != 0 || get(1) != 0 || get(5) != 15 {
		t.Error("a key without an entry is found")
	}
	c.remove(&keys[3], hashes[3])
	want("one removed", 0, 0, 22, 0, 14, 15)
	c.remove(&keys[0], hashes[0])
	put(0, 30)
	want("the free place is taken", 30, 0, 22, 0, 14, 15)
	if n := c.clear(); n != 4 || c.len() != 0 || get(0) != 0 {
		t.Errorf("%d entries were cleared, %d are left", n, c.len())
	}
}

// The cache has as many places as the rule says, in whole sets. One without places has no entry, and no
// cache has an entry that was not put there.
func TestSizeOfTheCache(t *testing.T) {
	for n, places := range map[int]int{0: 0, 1: 4, 4: 4, 5: 8, 8: 8, 1024: 1024} {
		c := newCache(n)
		if len(c.places) != places {
			t.Errorf("a cache for %d entries has %d places, want %d", n, len(c.places), places)
		}
		var k Key
		if c.get(&k, 0) != nil {
			t.Error("an empty cache has an entry")
		}
		c.remove(&k, 0)
		sets := map[*cached]bool{}
		for i := range 4 * n {
			k = keyOf(i)
			h := k.Hash()
			c.put(&k, &Action{}, h)
			if c.remove(&k, h); c.len() != 0 {
				t.Errorf("%d entries", c.len())
			}
			sets[&c.set(h)[0]] = true
		}
		if len(sets) != places/ways {
			t.Errorf("the keys use %d sets of %d", len(sets), places/ways)
		}
		if c.put(&k, &Action{}, k.Hash()); c.len() != min(n, 1) {
			t.Errorf("%d entries in a cache for %d", c.len(), n)
		}
	}
}

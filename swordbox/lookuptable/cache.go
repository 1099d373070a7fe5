package lookuptable

// ways is the number of places of a set. The entry of a key is in one of the places of one set.
const ways = 4

// cache holds entries that were found in servers' memory. It is divided into sets; a new entry
// replaces the least recently used one of its set.
type cache struct {
	places []cached
	clock  uint64 // number of uses of all entries so far
}

type cached struct {
	Entry
	used uint64 // value of cache.clock when the entry was used last; 0 means that the place is free
}

func newCache(n int) cache { return cache{places: make([]cached, (n+ways-1)/ways*ways)} }

func (c *cache) set(h uint64) []cached {
	i := int(h>>8%uint64(len(c.places)/ways)) * ways
	return c.places[i : i+ways]
}

// get returns the entry of a key; nil means that the cache does not have it.
func (c *cache) get(k *Key, h uint64) *cached {
	if len(c.places) == 0 {
		return nil
	}
	set := c.set(h)
	for i := range set {
		if e := &set[i]; e.used != 0 && e.Key == *k {
			c.clock++
			e.used = c.clock
			return e
		}
	}
	return nil
}

// put adds an entry. It replaces the former entry of the key, or else the least recently used place
// of the key's set.
func (c *cache) put(k *Key, a *Action, h uint64) {
	if len(c.places) == 0 {
		return
	}
	set := c.set(h)
	to := &set[0]
	for i := range set {
		if e := &set[i]; e.Key == *k {
			to = e
			break
		} else if e.used < to.used {
			to = e
		}
	}
	c.clock++
	*to = cached{Entry{*k, *a}, c.clock}
}

func (c *cache) remove(k *Key, h uint64) {
	if len(c.places) == 0 {
		return
	}
	set := c.set(h)
	for i := range set {
		if set[i].Key == *k {
			set[i] = cached{}
		}
	}
}

// clear empties the cache and returns how many entries it had.
func (c *cache) clear() int {
	n := c.len()
	clear(c.places)
	return n
}

// len returns how many entries the cache has.
func (c *cache) len() (n int) {
	for i := range c.places {
		if c.places[i].used != 0 {
			n++
		}
	}
	return n
}

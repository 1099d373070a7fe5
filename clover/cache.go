package clover

import "github.com/rdmalab/rdmalab/clover/layout"

// known is a client's knowledge of one key.
type known struct {
	at   layout.Location
	slot uint32
	// fresh: the metadata server named the chain in the present operation.
	fresh bool
	// epoch is an epoch in which the location was right. In a later epoch the entry may hold
	// another node with the same version.
	epoch uint32
}

// cache maps keys to the newest node that the client has seen. When it is full, a new key replaces
// the one that was inserted first.
type cache struct {
	max   int
	m     map[uint64]known
	order []uint64 // ring of keys in the order of their insertion
	next  int
}

func newCache(limit int) cache { return cache{max: limit, m: make(map[uint64]known)} }

func (c *cache) get(key uint64) (known, bool) {
	k, ok := c.m[key]
	return k, ok
}

func (c *cache) put(key uint64, k known) {
	if _, ok := c.m[key]; !ok {
		if len(c.order) < c.max {
			c.order = append(c.order, key)
		} else {
			delete(c.m, c.order[c.next])
			c.order[c.next] = key
			c.next = (c.next + 1) % c.max
		}
	}
	k.fresh = false
	c.m[key] = k
}

// drop forgets a key's location. Its place in the ring stays and is reused when the ring comes
// round to it.
func (c *cache) drop(key uint64) { delete(c.m, key) }

// clear forgets everything.
func (c *cache) clear() {
	clear(c.m)
	c.order, c.next = c.order[:0], 0
}

// remember keeps the location that an operation has found, unless the epoch has ended meanwhile:
// the client confirms the new epoch to the metadata server, and with that states that it remembers
// nothing of the old one.
func (c *finder) remember(key uint64, k known) {
	if k.epoch == c.lease.epoch {
		c.cache.put(key, k)
	}
}

// Learn copies the locations that another client of the same store remembers, for keys that this
// client does not know: for experiments that need clients with a warm cache. Locations are copied
// only if both clients are in the same epoch.
func (c *Client) Learn(from *Client) {
	for _, key := range from.cache.order {
		if _, ok := c.cache.get(key); !ok {
			if k, ok := from.cache.get(key); ok {
				c.remember(key, k)
			}
		}
	}
}

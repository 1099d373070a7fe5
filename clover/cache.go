package clover

import (
	"cmp"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// known is what a client knows of one key: the newest node that it has seen, and what it needs to
// decide whether it may still use that node's location.
type known struct {
	at   layout.Location
	slot uint32 // the number of the key's shortcut and record
	// fresh is true if the metadata server has named this chain during the current operation. Only
	// then a tombstone at the end of the chain proves that the key does not exist.
	fresh bool
	// epoch is an epoch in which the location is valid. In a later epoch, the entry that the
	// location names may contain another node with the same version.
	epoch uint32
	// incarnation is the incarnation of the metadata server that counted the epoch. generation is
	// the generation of the memory that contains the node; only entries of a shared Cache have it.
	incarnation uint32
	generation  uint64
	// passed is the location in the shortcut that a writer has followed last: its node comes before
	// `at`. A shortcut may name an old node for a long time, so a writer that followed it again and
	// again would never reach the end of the chain.
	passed layout.Location
}

// Cache maps keys to the locations of the newest nodes that clients have seen. When it is full, a
// new key replaces the key that was inserted first. Clients of one process may share a Cache, as
// the threads of the published client do (Config.Cache); any thread may use it. A client uses an
// entry of a shared Cache only if it knows the same incarnation of the metadata server, the same
// epoch and the same generation of the memory as the client that wrote the entry. So a client that
// learns of a change late does not mislead the others.
type Cache struct {
	mu    sync.Mutex // guards the fields below
	max   int        // how many keys fit
	m     map[uint64]known
	order []uint64 // ring of keys in the order of their insertion
	next  int      // if order is full: the index in `order` of the key that the next new key replaces
}

// NewCache makes an empty cache for up to limit locations; 0 means 1 << 20.
func NewCache(limit int) *Cache {
	limit = cmp.Or(limit, defaultCached)
	return &Cache{max: limit, m: make(map[uint64]known)}
}

func (c *Cache) get(key uint64) (known, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.m[key]
	return k, ok
}

func (c *Cache) put(key uint64, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// drop forgets the location of a key. The key itself stays in the ring c.order until it is the
// oldest one there and a new key replaces it.
func (c *Cache) drop(key uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, key)
}

func (c *Cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.m)
	c.order, c.next = c.order[:0], 0
}

// keys returns the keys in the ring c.order. Some may have been dropped since.
func (c *Cache) keys() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order)
}

// forgetLocations makes the client forget all locations. If only this client uses the cache, it
// empties the cache. It leaves the entries of a shared cache, because they may be valid for other
// clients; this client no longer uses them (see cached).
func (c *session) forgetLocations() {
	if c.own != nil {
		c.own.clear()
	}
}

// cached returns the cache's entry for a key. It returns false if there is none, or if it is not
// valid for this client.
func (c *finder) cached(key uint64) (known, bool) {
	k, ok := c.cache.get(key)
	if !ok || c.session.cfg.Cache == nil {
		return k, ok
	}
	p, in := c.session.space.Place(k.at.Handle)
	return k, in && c.session.servers[p.Server].generation == k.generation && k.epoch == c.session.lease.epoch && k.incarnation == c.session.lease.incarnation
}

// remember puts a location that an operation has found into the cache, unless the client has learnt
// of a new epoch meanwhile. When a client confirms a new epoch to the metadata server, it promises
// that it remembers no location of the old one.
func (c *finder) remember(key uint64, k known) {
	if k.epoch != c.session.lease.epoch || k.incarnation != c.session.lease.incarnation {
		return
	}
	if p, ok := c.session.space.Place(k.at.Handle); ok && c.session.cfg.Cache != nil {
		k.generation = c.session.servers[p.Server].generation
	}
	c.cache.put(key, k)
}

// Learn copies locations that another client of the same store remembers, for keys that this client
// does not know. Experiments call it to warm a client's cache. Learn copies a location only if both
// clients are in the same epoch of the same incarnation of the metadata server.
func (c *Client) Learn(from *Client) {
	if c.finder.cache == from.finder.cache {
		return
	}
	for _, key := range from.finder.cache.keys() {
		if _, ok := c.finder.cached(key); !ok {
			if k, ok := from.finder.cached(key); ok {
				c.finder.remember(key, k)
			}
		}
	}
}

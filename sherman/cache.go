package sherman

import (
	"math/rand/v2"
	"slices"
	"sort"
	"sync"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// cache is the index cache of a compute node. It holds copies of pages of level 1, whose entries
// name the leaves. A copy may be out of date. Then its entry for a key names the leaf that covers
// the key, or a leaf to the left of that leaf, never one to the right. From a leaf to the left, a
// search reaches the covering leaf through siblings.
type cache struct {
	mu    sync.Mutex // guards the fields below; never held during a wait
	limit int        // greatest size in bytes
	bytes int        // present size
	pages []*cached  // sorted by their lowest keys
	hits  uint64
	miss  uint64
}

// cached is the copy of one page of level 1. children[0] covers the keys from lowest to below
// keys[0], and children[i+1] the keys from keys[i] to below keys[i+1].
type cached struct {
	lowest, highest uint64
	keys            []uint64
	children        []layout.Addr
	hits            uint64
}

// cachedOverhead is about how many bytes of memory a cached page takes besides its keys and
// children.
const cachedOverhead = 96

func (p *cached) bytes() int { return cachedOverhead + 16*len(p.keys) + 8 }

// place returns the index of the last page whose lowest key is at most key, or -1 if there is none.
func (c *cache) place(key uint64) int {
	return sort.Search(len(c.pages), func(i int) bool { return c.pages[i].lowest > key }) - 1
}

// leaf returns the address of the leaf for a key. It returns false if the cache has no page that
// covers the key.
func (c *cache) leaf(key uint64) (layout.Addr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.place(key)
	if i < 0 || !c.pages[i].covers(key) {
		c.miss++
		return 0, false
	}
	c.hits++
	return c.pages[i].child(key), true
}

func (p *cached) covers(key uint64) bool {
	return layout.Covers(p.lowest, p.highest, key)
}

func (p *cached) childIndex(key uint64) int {
	return sort.Search(len(p.keys), func(i int) bool { return p.keys[i] > key })
}

func (p *cached) child(key uint64) layout.Addr {
	p.hits++
	return p.children[p.childIndex(key)]
}

// leaves appends to dst the addresses of up to n leaves of one cached page, beginning with the leaf
// for key. It appends to seps the separators between these leaves. If the cache has no page that
// covers the key, it appends nothing.
func (c *cache) leaves(key uint64, n int, dst []layout.Addr, seps []uint64) ([]layout.Addr, []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.place(key)
	if i < 0 || !c.pages[i].covers(key) {
		c.miss++
		return dst, seps
	}
	c.hits++
	p := c.pages[i]
	p.hits++
	from := p.childIndex(key)
	to := min(from+n, len(p.children))
	return append(dst, p.children[from:to]...), append(seps, p.keys[from:to-1]...)
}

// put adds a copy of the page p of level 1. As long as the cache is too large, put calls evict,
// which draws two pages at random and removes the one with fewer hits.
func (c *cache) put(p *layout.Page, r *rand.Rand) {
	e := &cached{lowest: p.Lowest, highest: p.Highest, children: []layout.Addr{p.Leftmost}}
	for _, i := range p.Order(nil) {
		rec, _ := p.Slot(int(i))
		e.keys = append(e.keys, rec.Key)
		e.children = append(e.children, rec.Child())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.place(p.Lowest)
	if i >= 0 && c.pages[i].lowest == p.Lowest {
		c.bytes -= c.pages[i].bytes()
		e.hits = c.pages[i].hits
		c.pages[i] = e
	} else {
		c.pages = slices.Insert(c.pages, i+1, e)
	}
	for c.bytes += e.bytes(); c.bytes > c.limit && len(c.pages) > 0; {
		c.evict(r)
	}
}

func (c *cache) evict(r *rand.Rand) {
	a, b := r.IntN(len(c.pages)), r.IntN(len(c.pages))
	if c.pages[b].hits < c.pages[a].hits {
		a = b
	}
	c.remove(a)
}

func (c *cache) remove(i int) {
	c.bytes -= c.pages[i].bytes()
	c.pages = slices.Delete(c.pages, i, i+1)
}

func (c *cache) drop(key uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.place(key); i >= 0 && c.pages[i].covers(key) {
		c.remove(i)
	}
}

func (c *cache) size() (pages, bytes int, hits, misses uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pages), c.bytes, c.hits, c.miss
}

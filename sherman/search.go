package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// walker finds pages: in the index cache of the node, and from the root down.
type walker struct {
	mem    *memory
	locker *locker
	// heal is a separator that is missing in the tree, as far as the operation knows. Its level is
	// 0 if none is missing.
	heal separator
	// astray is a pointer, found by the last search, that names a page too far to the left. Its
	// field `from` is 0 if there is no such pointer.
	astray pointer
	// dead is a closed page that the operation found, or 0; repair takes it out of the tree.
	dead layout.Addr
	// restarts counts how many times the operation has begun again at the root.
	restarts int
}

// pointer is the entry for a key in the internal page at the address `from`. child is the page that
// covers the key, and that the entry should name.
type pointer struct {
	from  layout.Addr // 0 means no pointer
	key   uint64
	child layout.Addr
}

// maxSteps is the greatest number of pages on a walk. Only a damaged tree needs more.
const maxSteps = 1 << 16

const maxLevel = 32

// maxRestarts is how many times in a row an operation begins again at the root because it has come
// to a page that has left the tree. After that the operation reports that the tree is damaged.
// After someRestarts the operation pauses before each further attempt.
const (
	maxRestarts  = 20
	someRestarts = 4
)

// restart is called with the error of a search for a key. If the client read a pointer before a
// merge, it may come to a page that has left the tree, or that is in use again. Then restart
// returns nil, and the caller begins again at the root. Otherwise it returns the error with which
// the operation ends.
func (c *walker) restart(err error, key uint64, deadline clock.Time) error {
	if !errors.Is(err, ErrBroken) || c.restarts >= maxRestarts {
		return err
	}
	c.restarts++
	c.mem.node.cache.drop(key)
	c.mem.node.count(func(s *NodeStats) { s.Restarts++ })
	if c.mem.rt.Now() >= deadline {
		return kv.TimedOut(err)
	}
	if c.restarts > someRestarts {
		c.mem.rt.Sleep(pause)
	}
	return nil
}

// Get appends the value of key to dst[:0]. It takes one round trip if the index cache knows the
// leaf.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.tree.begin(deadline); err != nil {
		return dst[:0], err
	}
	for {
		v, err := c.get(key, dst[:0], deadline)
		if err == nil || errors.Is(err, kv.ErrNotFound) {
			return v, err
		}
		if err = c.tree.restart(err, key, deadline); err == nil {
			continue
		}
		// The lost page may be an internal one. Then the leaf with the key may be on another
		// server, and the key may not be lost.
		if errors.Is(err, kv.ErrLost) {
			err = noEffect(err)
		}
		return dst[:0], err
	}
}

func (c *Client) get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	a, err := c.tree.locate(key, 0, deadline)
	for err == nil {
		if a, err = c.tree.covering(a, key, 0, deadline); err != nil {
			break
		}
		_, v, ok, torn := c.mem.page.Find(key)
		switch {
		case ok:
			return append(dst, v...), nil
		case torn == nil || c.mem.node.cfg.LostSearch:
			return dst, kv.ErrNotFound
		}
		c.mem.node.count(func(s *NodeStats) { s.Torn++ })
		if c.mem.rt.Now() >= deadline {
			err = kv.TimedOut(torn)
		}
	}
	return dst, err
}

// locate returns the page of a level that covers a key, or a page to the left of it. It asks the
// index cache first (leaves only), and then walks down from the root.
func (c *walker) locate(key uint64, level int, deadline clock.Time) (layout.Addr, error) {
	if level == 0 {
		if a, ok := c.mem.node.cache.leaf(key); ok {
			return a, nil
		}
	}
	return c.descend(key, level, c.restarts > 0, deadline)
}

// covering finds the page of a level that covers a key. It reads the page at address a, and then
// one sibling after the other, into c.mem.page, until it has the page that covers the key. It returns
// the address of that page.
func (c *walker) covering(a layout.Addr, key uint64, level int, deadline clock.Time) (layout.Addr, error) {
	for step := 0; ; step++ {
		if err := c.mem.readPage(a, &c.mem.page, c.mem.pageBuf, deadline); err != nil {
			return 0, err
		}
		p := &c.mem.page
		switch {
		case p.Level != level || key < p.Lowest || step > maxSteps:
			return 0, fmt.Errorf("%w: page %v of level %d with lowest key %d, on the path to key %d on level %d", ErrBroken, a, p.Level, p.Lowest, key, level)
		case p.Covers(key) && p.Stage == layout.Closed:
			next, err := c.behind(a, key, deadline)
			if next == 0 || err != nil {
				return a, err
			}
			a = next
			continue
		case p.Covers(key):
			if step > 0 {
				c.moved(step, separator{level + 1, p.Lowest, a})
			}
			return a, nil
		}
		if p.Sibling == 0 {
			return 0, errEnds(a, key)
		}
		a = p.Sibling
	}
}

// behind is called with c.mem.page, the closed page at address a. It returns the address of the sibling
// if the sibling has taken over the range of the closed page. Otherwise it reads the page at a
// again into c.mem.page, and returns 0: the search can use this page. If the page is still closed, its
// records do not change, and they were those of the range when the page was read first, because the
// sibling had not taken over the range then. If the page has been opened meanwhile, its records are
// those of the range now. In one case behind returns a, and the search goes on there: the page no
// longer covers the key, because it was split or has given its upper records away.
func (c *walker) behind(a layout.Addr, key uint64, deadline clock.Time) (layout.Addr, error) {
	sibling := c.mem.page.Sibling
	if err := c.mem.readPage(sibling, &c.mem.page, c.mem.pageBuf, deadline); err != nil {
		return 0, err
	}
	from := c.mem.page.Lowest
	if from <= key {
		return sibling, nil
	}
	// The sibling that was just read begins above the key, so it has not taken over the key's range.
	// Only the sibling that a closed page names can take over the range, and a sibling's lowest key
	// never increases. So it had not taken the range over when the closed page was first read. c.mem.page
	// has the sibling now, so the closed page is read again. If its memory was reused meanwhile, this
	// READ may see the old header with slots of the new page. The marks of these slots are of a later
	// epoch than the header, so they are noticed (layout.Page.Init).
	err := c.mem.readPage(a, &c.mem.page, c.mem.pageBuf, deadline)
	if err == nil && !c.mem.page.Covers(key) {
		return a, nil
	}
	// The sibling may have taken over the range from a cut on. Then the closed page's records from
	// the cut on are out of date, and a scan must not use them.
	c.mem.page.Highest = min(c.mem.page.Highest, from)
	return 0, err
}

// errEnds returns the error for a page at address a that does not cover the key and has no sibling,
// or that has no child for the key.
func errEnds(a layout.Addr, key uint64) error {
	return fmt.Errorf("%w: the path to key %d ends at page %v", ErrBroken, key, a)
}

// moved notes that a search reached a page through one or more siblings (steps is their number).
// The reason is that the index cache is out of date, or that the separator s is missing.
func (c *walker) moved(steps int, s separator) {
	c.mem.node.count(func(st *NodeStats) { st.Moves += uint64(steps) })
	if s.level == 1 {
		c.mem.node.cache.drop(s.key)
	}
	c.heal = s
}

// descend walks from the root down to the page of a level that covers a key. If fresh is true,
// descend first reads the address of the root instead of using the node's copy.
func (c *walker) descend(key uint64, level int, fresh bool, deadline clock.Time) (layout.Addr, error) {
	a, err := c.rootPage(fresh, deadline)
	if err != nil {
		return 0, err
	}
	aside := false // true if the last step was to a sibling
	want := -1     // the level of the next page; -1 means any
	var via pointer
	for range maxSteps {
		if err := c.mem.readPage(a, &c.mem.page, c.mem.pageBuf, deadline); err != nil {
			return 0, err
		}
		p := &c.mem.page
		switch {
		case p.Level > maxLevel || key < p.Lowest || want >= 0 && p.Level != want:
			return 0, fmt.Errorf("%w: page %v of level %d with lowest key %d, on the path to key %d", ErrBroken, a, p.Level, p.Lowest, key)
		case p.Level < level:
			return 0, errNoLevel
		case !p.Covers(key):
			if c.mem.node.rootHint() == a {
				// the root was split: a higher root exists, or a client will make it
				c.mem.node.setRoot(0)
			}
			if p.Sibling == 0 {
				return 0, errEnds(a, key)
			}
			a, aside, want = p.Sibling, true, p.Level
			continue
		}
		// The parent has no separator for this page, or was read before it had one.
		if aside && p.Stage == layout.Live {
			c.heal = separator{p.Level + 1, p.Lowest, a}
			if via.from != 0 && p.Lowest <= via.key {
				via.child = a
				c.astray = via
			}
		}
		aside = false
		if p.Level == level {
			return a, nil
		}
		if p.Stage == layout.Closed {
			c.dead = a
		}
		if p.Level == 1 {
			c.mem.node.cache.put(p, c.mem.rand)
		}
		from := a
		want = p.Level - 1
		via = pointer{from: from}
		if a, via.key = p.Separator(key); a == 0 {
			return 0, errEnds(from, key)
		}
	}
	return 0, fmt.Errorf("%w: no path to key %d", ErrBroken, key)
}

// errNoLevel means that the level is above the root.
var errNoLevel = fmt.Errorf("the tree has no such level")

// rootPage returns the address of the root. If fresh is false and the node has a copy of the
// address, it returns the copy; otherwise it reads the address from the first memory server.
func (c *walker) rootPage(fresh bool, deadline clock.Time) (layout.Addr, error) {
	if a := c.mem.node.rootHint(); a != 0 && !fresh {
		return a, nil
	}
	a, err := c.readRoot(deadline)
	if err == nil {
		c.mem.node.setRoot(a)
	}
	return a, err
}

// readRoot reads the address of the root page.
func (c *walker) readRoot(deadline clock.Time) (layout.Addr, error) {
	w, err := c.mem.word(layout.At(0, layout.RootWord), wordRoot, deadline)
	return layout.Addr(w), err
}

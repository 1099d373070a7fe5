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
	locker
	// heal is a separator that is missing, as the last descent has found.
	heal separator
	// astray is a pointer that leads too far to the left, as the last descent has found.
	astray pointer
	// dead is a closed page that the operation has met; repair takes it out of the tree.
	dead layout.Addr
	// restarts counts how often the operation has begun again at the root.
	restarts int
}

// pointer is an entry of an internal page at a key, and the page that covers the key.
type pointer struct {
	from  layout.Addr // 0: no pointer
	key   uint64
	child layout.Addr
}

// maxSteps bounds a walk from the root to a page: only a damaged tree has a longer one.
const maxSteps = 1 << 16

// maxLevel bounds the height of a tree.
const maxLevel = 32

// maxRestarts bounds how many times in a row an operation may follow a pointer to a page that has
// left the tree, before it takes the tree for damaged. After someRestarts it pauses before each
// further attempt.
const (
	maxRestarts  = 20
	someRestarts = 4
)

// restart handles an error on the path to a key. A client that has read a pointer before a merge
// comes to a page that has left the tree, and that may be in use as another page. Then the search
// begins again at the root, and restart returns nil.
func (c *walker) restart(err error, key uint64, deadline clock.Time) error {
	if !errors.Is(err, ErrBroken) || c.restarts >= maxRestarts {
		return err
	}
	c.restarts++
	c.node.cache.drop(key)
	c.node.count(func(s *NodeStats) { s.Restarts++ })
	if c.rt.Now() >= deadline {
		return kv.TimedOut(err)
	}
	if c.restarts > someRestarts {
		c.rt.Sleep(pause)
	}
	return nil
}

// Get appends the value of key to dst[:0]: one round trip if the index cache knows the leaf.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.begin(deadline); err != nil {
		return dst[:0], err
	}
	for {
		v, err := c.get(key, dst[:0], deadline)
		if err == nil || errors.Is(err, kv.ErrNotFound) {
			return v, err
		}
		if err = c.restart(err, key, deadline); err == nil {
			continue
		}
		// the lost page may be an internal one: the leaf with the key may be on another server
		if errors.Is(err, kv.ErrLost) {
			err = noEffect(err)
		}
		return dst[:0], err
	}
}

// get searches for a key once.
func (c *Client) get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	a, err := c.locate(key, 0, deadline)
	for err == nil {
		if a, err = c.covering(a, key, 0, deadline); err != nil {
			break
		}
		_, v, ok, torn := c.page.Find(key)
		switch {
		case ok:
			return append(dst, v...), nil
		case torn == nil || c.node.cfg.LostSearch:
			return dst, kv.ErrNotFound
		}
		c.node.count(func(s *NodeStats) { s.Torn++ })
		if c.rt.Now() >= deadline {
			err = kv.TimedOut(torn)
		}
	}
	return dst, err
}

// locate returns the page of a level that covers a key, or a page to the left of it. It finds the
// page in the cache, or from the root down.
func (c *walker) locate(key uint64, level int, deadline clock.Time) (layout.Addr, error) {
	if level == 0 {
		if a, ok := c.node.cache.leaf(key); ok {
			return a, nil
		}
	}
	return c.descend(key, level, c.restarts > 0, deadline)
}

// covering reads the page at a and its siblings, up to the page that covers a key, into c.page. It
// returns the address of that page.
func (c *walker) covering(a layout.Addr, key uint64, level int, deadline clock.Time) (layout.Addr, error) {
	for step := 0; ; step++ {
		if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
			return 0, err
		}
		p := &c.page
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

// behind returns the page that has taken over the range of the closed page c.page at a. If it
// returns 0, no page had when the closed page, again in c.page, was read: its records, which never
// change, were those of its range.
func (c *walker) behind(a layout.Addr, key uint64, deadline clock.Time) (layout.Addr, error) {
	was := c.page.Header
	c.dead = a
	if err := c.readPage(was.Sibling, &c.page, c.pageBuf, deadline); err != nil {
		return 0, err
	}
	if c.page.Lowest <= key {
		return was.Sibling, nil
	}
	// As long as the closed page names the same sibling, only that one can take over its range; and
	// it had not done so when it was read. A page that has been reused is not read as the closed one:
	// all of its slots are younger than the header (layout.Page.Init).
	if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
		return 0, err
	}
	if c.page.Header != was {
		return 0, fmt.Errorf("%w: page %v was merged", ErrBroken, a)
	}
	return 0, nil
}

// errEnds returns the error for a page at a that does not cover the key and has no sibling, or that
// has no child for the key.
func errEnds(a layout.Addr, key uint64) error {
	return fmt.Errorf("%w: the path to key %d ends at page %v", ErrBroken, key, a)
}

// moved records that a page was found through its siblings: the index cache is out of date, or a
// split was not finished.
func (c *walker) moved(steps int, s separator) {
	c.node.count(func(st *NodeStats) { st.Moves += uint64(steps) })
	if s.level == 1 {
		c.node.cache.drop(s.key)
	}
	c.heal = s
}

// descend walks from the root down to a level. If fresh is true, it first reads the address of the
// root, instead of using the node's copy.
func (c *walker) descend(key uint64, level int, fresh bool, deadline clock.Time) (layout.Addr, error) {
	a, err := c.rootPage(fresh, deadline)
	if err != nil {
		return 0, err
	}
	aside := false // the last step was to a sibling
	want := -1     // the level of the next page; -1: any
	var via pointer
	for range maxSteps {
		if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
			return 0, err
		}
		p := &c.page
		switch {
		case p.Level > maxLevel || key < p.Lowest || want >= 0 && p.Level != want:
			return 0, fmt.Errorf("%w: page %v of level %d with lowest key %d, on the path to key %d", ErrBroken, a, p.Level, p.Lowest, key)
		case p.Level < level:
			return 0, errNoLevel
		case !p.Covers(key):
			if c.node.rootHint() == a {
				c.node.setRoot(0) // the root was split: there is a higher one, or will be
			}
			if p.Sibling == 0 {
				return 0, errEnds(a, key)
			}
			a, aside, want = p.Sibling, true, p.Level
			continue
		}
		if aside && p.Stage == layout.Live { // the parent has no separator for this page, or was read before it had one
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
			c.node.cache.put(p, c.rand)
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

// errNoLevel: the tree has fewer levels.
var errNoLevel = fmt.Errorf("the tree has no such level")

// rootPage returns the address of the root.
func (c *walker) rootPage(fresh bool, deadline clock.Time) (layout.Addr, error) {
	if a := c.node.rootHint(); a != 0 && !fresh {
		return a, nil
	}
	a, err := c.Root(deadline)
	if err == nil {
		c.node.setRoot(a)
	}
	return a, err
}

// Root reads the address of the root page.
func (c *walker) Root(deadline clock.Time) (layout.Addr, error) {
	for {
		err := c.reach(0, deadline)
		if err == nil {
			var w uint64
			if w, err = c.readWord(c.target(layout.At(0, layout.RootWord)), wordRoot, deadline); err == nil {
				return layout.Addr(w), nil
			}
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return 0, err
		}
	}
}

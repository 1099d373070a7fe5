package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// maxSteps bounds a walk from the root to a page: a longer one is in a damaged tree.
const maxSteps = 1 << 16

// maxLevel bounds the height of a tree.
const maxLevel = 32

// Get appends the value of key to dst[:0]: one round trip if the index cache knows the leaf.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.begin(deadline); err != nil {
		return dst[:0], err
	}
	a, err := c.locate(key, 0, deadline)
	for err == nil {
		if a, err = c.covering(a, key, 0, deadline); err != nil {
			break
		}
		_, v, ok, torn := c.page.Find(key)
		switch {
		case ok:
			return append(dst[:0], v...), nil
		case torn == nil || c.node.cfg.LostSearch:
			return dst[:0], kv.ErrNotFound
		}
		c.node.count(func(s *NodeStats) { s.Torn++ })
		if c.rt.Now() >= deadline {
			err = timeout(torn)
		}
	}
	if errors.Is(err, kv.ErrLost) { // a page on the way: the leaf, and the key in it, may be elsewhere
		err = noEffect(err)
	}
	return dst[:0], err
}

// locate returns a page of a level that covers a key, or one to the left of it: from the cache, or by way of the root.
func (c *Client) locate(key uint64, level int, deadline clock.Time) (layout.Addr, error) {
	if level == 0 {
		if a, ok := c.node.cache.leaf(key); ok {
			return a, nil
		}
	}
	return c.descend(key, level, false, deadline)
}

// covering reads the page at a, and its siblings up to the one that covers a key, into c.page, and returns that one's address.
func (c *Client) covering(a layout.Addr, key uint64, level int, deadline clock.Time) (layout.Addr, error) {
	for step := 0; ; step++ {
		if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
			return 0, err
		}
		p := &c.page
		switch {
		case p.Level != level || key < p.Lowest || step > maxSteps:
			return 0, fmt.Errorf("%w: page %v of level %d from key %d on, on the way to key %d on level %d", ErrBroken, a, p.Level, p.Lowest, key, level)
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

// errEnds says that the page at a does not lead on to a key that it does not cover.
func errEnds(a layout.Addr, key uint64) error {
	return fmt.Errorf("%w: the way to key %d ends at page %v", ErrBroken, key, a)
}

// moved notes that a page was found by way of its siblings: the index cache is old, or a split was not finished.
func (c *Client) moved(steps int, s separator) {
	c.node.count(func(st *NodeStats) { st.Moves += uint64(steps) })
	if s.level == 1 {
		c.node.cache.drop(s.key)
	}
	c.heal = s
}

// descend walks from the root down to a level. fresh asks for the root that there is now.
func (c *Client) descend(key uint64, level int, fresh bool, deadline clock.Time) (layout.Addr, error) {
	a, err := c.rootPage(fresh, deadline)
	if err != nil {
		return 0, err
	}
	aside := false // the last step was to a sibling
	for range maxSteps {
		if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
			return 0, err
		}
		p := &c.page
		switch {
		case p.Level > maxLevel || key < p.Lowest:
			return 0, fmt.Errorf("%w: page %v of level %d from key %d on, on the way to key %d", ErrBroken, a, p.Level, p.Lowest, key)
		case p.Level < level:
			return 0, errNoLevel
		case !p.Covers(key):
			if c.node.rootHint() == a {
				c.node.setRoot(0) // it has been split: there is a higher one, or will be
			}
			if p.Sibling == 0 {
				return 0, errEnds(a, key)
			}
			a, aside = p.Sibling, true
			continue
		}
		if aside { // the page above does not know this one, or was read before it did
			c.heal = separator{p.Level + 1, p.Lowest, a}
			aside = false
		}
		if p.Level == level {
			return a, nil
		}
		if p.Level == 1 {
			c.node.cache.put(p, c.rand)
		}
		from := a
		if a = p.Child(key); a == 0 {
			return 0, errEnds(from, key)
		}
	}
	return 0, fmt.Errorf("%w: no way to key %d", ErrBroken, key)
}

// errNoLevel says that the tree is not so high.
var errNoLevel = fmt.Errorf("no such level")

// rootPage is the address of the root.
func (c *Client) rootPage(fresh bool, deadline clock.Time) (layout.Addr, error) {
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
func (c *Client) Root(deadline clock.Time) (layout.Addr, error) {
	for {
		err := c.reach(0, deadline)
		if err == nil {
			var w uint64
			if w, err = c.readWord(c.target(layout.At(0, layout.RootWord)), wordRoot, deadline); err == nil {
				return layout.Addr(w), nil
			}
		}
		if err := c.again(err, deadline); err != nil {
			return 0, err
		}
	}
}

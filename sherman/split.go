package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// split makes room in the full page c.page at a, which is locked, and puts the record in: a leaf's, or a child. The new
// page is in memory before the old one leads to it; then the parent learns of it.
func (c *Client) split(h *held, a layout.Addr, key uint64, value []byte, child layout.Addr, deadline clock.Time) error {
	p := &c.page
	to, ok := c.fresh()
	if !ok || !p.CanSplit() {
		return errors.Join(fmt.Errorf("%w: no page for a split", kv.ErrFull), keepUnknown(c.release(h, deadline)))
	}
	var sep uint64
	sep, c.order, c.ranges = p.Split(to, c.sibBuf, &c.sib, c.order, c.ranges[:0])
	in := p
	if key >= sep {
		in = &c.sib
	}
	var r layout.Range
	if child != 0 {
		r = in.PutChild(key, child)
	} else {
		r = in.Put(in.FreeSlot(), key, value)
	}
	if in == p && c.ranges[len(c.ranges)-1].Len < len(p.Bytes) {
		c.ranges = append(c.ranges, r)
	}
	if err := c.writeFresh(to, c.sibBuf, deadline); err != nil {
		return errors.Join(err, keepUnknown(c.release(h, deadline)))
	}
	level := p.Level + 1
	if err := c.commit(h, a, c.ranges, deadline); err != nil {
		return err // the new page is lost if nobody leads to it
	}
	c.node.count(func(s *NodeStats) { s.Splits++ })
	if level == 2 {
		c.node.cache.put(&c.page, c.rand)
		c.node.cache.put(&c.sib, c.rand)
	}
	c.heal = separator{level, sep, to}
	return nil
}

// writeFresh writes a page that nobody leads to yet. It may be written more than once.
func (c *Client) writeFresh(a layout.Addr, b []byte, deadline clock.Time) error {
	for {
		err := c.reach(a.Server(), deadline)
		if err == nil {
			err = c.fab.MR().WriteAt(b, c.at.sib)
		}
		if err == nil {
			o := &c.ops[0]
			c.fab.Write(o, c.target(a), c.at.sib, len(b))
			if err = c.do(deadline, o); err == nil {
				return nil
			}
		}
		if err := c.again(err, deadline); err != nil {
			return err
		}
	}
}

// maxMends bounds the separators that one operation puts in: a split of each level, and somebody else's.
const maxMends = 2 * maxLevel

// mend puts into the parent what it does not know of a page that this operation has made, or has found without it. The operation
// itself has been done: a separator that cannot be put in now is left to whoever finds the page next.
func (c *Client) mend(deadline clock.Time) {
	own := c.cost
	for range maxMends {
		s := c.heal
		if c.heal = (separator{}); s.level == 0 {
			break
		}
		if err := c.adopt(s, deadline); err != nil {
			break
		}
	}
	c.cost.CAS, c.cost.Retries = own.CAS, own.Retries // of the operation itself
}

// adopt puts a separator into the page of its level that covers it.
func (c *Client) adopt(s separator, deadline clock.Time) error {
	a, err := c.descend(s.key, s.level, true, deadline)
	for {
		if errors.Is(err, errNoLevel) {
			if err = c.newRoot(s, deadline); !errors.Is(err, errRoot) {
				return err
			}
			a, err = c.descend(s.key, s.level, true, deadline)
			continue
		}
		if err == nil {
			err = c.reserve(deadline)
		}
		if err != nil {
			return err
		}
		var next layout.Addr
		if next, err = c.putChild(a, s, deadline); err != nil && !errors.Is(err, errOwner) {
			return err
		}
		if err == nil && next == 0 {
			return nil
		}
		if err = nil; next != 0 {
			a = next
		}
	}
}

// putChild puts a separator into the page at a, or returns where to try next.
func (c *Client) putChild(a layout.Addr, s separator, deadline clock.Time) (next layout.Addr, err error) {
	h, err := c.acquire(a, deadline)
	if err != nil {
		return 0, err
	}
	if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
		return 0, errors.Join(err, c.release(h, deadline))
	}
	p := &c.page
	if p.Level != s.level || s.key < p.Lowest {
		return 0, errors.Join(fmt.Errorf("%w: page %v as the parent of key %d", ErrBroken, a, s.key), c.release(h, deadline))
	}
	if !p.Covers(s.key) {
		if p.Sibling == 0 {
			return 0, errors.Join(errEnds(a, s.key), c.release(h, deadline))
		}
		return p.Sibling, c.release(h, deadline)
	}
	if _, _, there, _ := p.Find(s.key); there || s.key == p.Lowest {
		return 0, c.release(h, deadline)
	}
	if p.FreeSlot() < 0 {
		return 0, c.split(h, a, s.key, nil, s.child, deadline)
	}
	c.ranges = append(c.ranges[:0], p.PutChild(s.key, s.child))
	if err := c.commit(h, a, c.ranges, deadline); err != nil {
		return 0, err
	}
	c.node.count(func(st *NodeStats) { st.Healed++ })
	if s.level == 1 {
		c.node.cache.put(p, c.rand)
	}
	return 0, nil
}

// errRoot says that somebody else has made a new root.
var errRoot = errors.New("the root is another one")

// newRoot makes a root above the one there is, which must be one level below the separator's.
func (c *Client) newRoot(s separator, deadline clock.Time) error {
	old, err := c.Root(deadline)
	if err != nil {
		return err
	}
	if err := c.readPage(old, &c.page, c.pageBuf, deadline); err != nil {
		return err
	}
	if c.page.Level >= s.level {
		return errRoot
	}
	if c.page.Level != s.level-1 || c.page.Lowest != 0 {
		return fmt.Errorf("%w: root %v of level %d from key %d on", ErrBroken, old, c.page.Level, c.page.Lowest)
	}
	if err := c.reserve(deadline); err != nil {
		return err
	}
	at, ok := c.fresh()
	if !ok {
		return kv.ErrFull
	}
	c.sib.Init(c.super.Shape, c.sibBuf, layout.Header{
		Level: s.level, Highest: layout.MaxKey, Leftmost: old, Self: at, Generation: c.super.Generation,
	})
	c.sib.PutChild(s.key, s.child)
	if err := c.writeFresh(at, c.sibBuf, deadline); err != nil {
		return err
	}
	for doubt := false; ; doubt = true {
		won, err := c.swapRoot(old, at, deadline)
		if err == nil && !won {
			if !doubt { // else it may have been the root, and be a page of the tree since another one came above it
				c.space.giveBack(at)
			}
			return errRoot
		}
		if err == nil {
			c.node.setRoot(at)
			c.node.count(func(s *NodeStats) { s.Roots++ })
			return nil
		}
		if err := c.again(err, deadline); err != nil {
			return err
		}
	}
}

// swapRoot makes at the root. After an attempt whose outcome was unknown, the next one sees what became of it.
func (c *Client) swapRoot(old, at layout.Addr, deadline clock.Time) (bool, error) {
	if err := c.reach(0, deadline); err != nil {
		return false, err
	}
	was, err := c.swap(c.target(layout.At(0, layout.RootWord)), uint64(old), uint64(at), deadline)
	return layout.Addr(was) == old || layout.Addr(was) == at, err
}

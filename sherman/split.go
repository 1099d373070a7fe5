package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// split splits c.mem.page, the page at address a, whose lock h the client holds. If add is not nil,
// split calls add with the page that then covers key, to add the record. split writes the new page
// before the old page names it. The separator is added to the parent later, by repair.
func (c *changer) split(h *held, a layout.Addr, key uint64, add func(in *layout.Page) layout.Range, deadline clock.Time) error {
	p := &c.mem.page
	to, ok := c.fresh()
	if !ok || !p.CanSplit() {
		return errors.Join(fmt.Errorf("%w: page %v has too few records for a split", kv.ErrFull, a), ignoreRelease(c.locker.release(h, deadline)))
	}
	c.edit.Begin(p)
	var sep uint64
	sep, c.order = c.edit.SplitFor(key, to, c.sibBuf, &c.sib, c.order)
	switch {
	case add == nil:
	case key >= sep:
		add(&c.sib)
	default:
		// If the split writes the whole page (kinds other than Hardened), the record needs no range
		// of its own.
		if r := add(p); c.edit.Ranges[len(c.edit.Ranges)-1].Len < len(p.Bytes)-layout.LockLen {
			c.edit.Add(r)
		}
	}
	if err := c.writeFresh(to.At, c.sibBuf, deadline); err != nil {
		return errors.Join(err, ignoreRelease(c.locker.release(h, deadline)))
	}
	level := p.Level + 1
	if err := c.locker.commit(h, a, c.edit.Ranges, deadline); err != nil {
		if errors.Is(err, errOwner) { // no page names the new page
			c.spare = append(c.spare, to)
		}
		return err // if the outcome is unknown, the new page is not reused
	}
	c.mem.node.count(func(s *NodeStats) { s.Splits++ })
	if level == 2 {
		c.mem.node.cache.put(&c.mem.page, c.mem.rand)
		c.mem.node.cache.put(&c.sib, c.mem.rand)
	}
	c.tree.heal = separator{level, sep, to.At}
	return nil
}

// writeFresh writes a page that no other page names yet. It is safe to repeat the WRITE.
func (c *changer) writeFresh(a layout.Addr, b []byte, deadline clock.Time) error {
	return c.mem.retried(a.Server(), deadline, func() error {
		if err := c.mem.fab.MR().WriteAt(b, c.mem.at.sib); err != nil {
			return err
		}
		o := &c.mem.ops[0]
		c.mem.fab.Write(o, c.mem.target(a), c.mem.at.sib, len(b))
		return c.mem.do(deadline, o)
	})
}

// maxRepairs is the greatest number of separators that one operation adds: one for a split on each
// level, and as many for splits of other clients.
const maxRepairs = 2 * maxLevel

// repair is called when an operation is complete. It adds missing separators to parents and takes
// closed pages out of the tree, if this operation has caused or found them. If repair fails, a
// later client that finds such a page repeats it.
func (c *changer) repair(deadline clock.Time) {
	own, astray := c.mem.cost, c.tree.astray
	c.adoptAll(deadline)
	if astray.from != 0 {
		_ = c.repoint(astray, deadline) // if it fails, another client does it
	}
	if c.tree.dead != 0 {
		c.emptied = append(c.emptied, c.tree.dead)
	}
	if c.sparse != 0 {
		// an error is no harm: the next writer that finds the page closed completes the merge
		_ = c.merge(c.sparse, deadline)
	}
	for range maxMerges { // merges may close further pages
		n := len(c.emptied) - 1
		if n < 0 {
			break
		}
		a := c.emptied[n]
		c.emptied = c.emptied[:n]
		if c.finish(a, 0, deadline) != nil {
			break
		}
	}
	c.adoptAll(deadline)
	// the cost counts only the CAS of the operation itself
	c.mem.cost.CAS, c.mem.cost.Retries = own.CAS, own.Retries
}

// adoptAll adds the separator that is missing in the tree as far as the client knows (c.tree.heal) to a
// page of the level above. It goes on as long as this shows that a further separator is missing.
func (c *changer) adoptAll(deadline clock.Time) {
	for range maxRepairs {
		s := c.tree.heal
		if c.tree.heal = (separator{}); s.level == 0 || c.adopt(s, deadline) != nil {
			return
		}
	}
}

// adopt adds a separator to the page of level s.level that covers the separator's key. If the root
// is below that level, adopt makes a new root.
func (c *changer) adopt(s separator, deadline clock.Time) error {
	return c.onPage(
		s.key, func() (layout.Addr, error) { return c.tree.descend(s.key, s.level, true, deadline) },
		func(a layout.Addr) (layout.Addr, error) { return c.putChild(a, s, deadline) },
		func(err error) (done bool, _ error) {
			if !errors.Is(err, errNoLevel) {
				return false, c.tree.restart(err, s.key, deadline)
			}
			if err = c.newRoot(s, deadline); errors.Is(err, errRoot) {
				return false, nil
			}
			return err == nil, err
		}, deadline,
	)
}

// putChild adds a separator to the page at address a. If that page does not cover the key, putChild
// returns its sibling as the next page to try, otherwise 0.
func (c *changer) putChild(a layout.Addr, s separator, deadline clock.Time) (next layout.Addr, err error) {
	h, err := c.locker.acquire(a, deadline)
	if err != nil {
		return 0, err
	}
	give := func(err error) error { return errors.Join(err, ignoreRelease(c.locker.release(h, deadline))) }
	if err := c.mem.readPage(a, &c.mem.page, c.mem.pageBuf, deadline); err != nil {
		return 0, give(err)
	}
	p := &c.mem.page
	if p.Level != s.level || s.key < p.Lowest {
		return 0, give(fmt.Errorf("%w: page %v as the parent of key %d", ErrBroken, a, s.key))
	}
	if !p.Covers(s.key) {
		if p.Sibling == 0 {
			return 0, give(errEnds(a, s.key))
		}
		return p.Sibling, c.locker.release(h, deadline)
	}
	if p.Stage == layout.Closed {
		return 0, give(errClosed)
	}
	if _, _, there, _ := p.Find(s.key); there || s.key == p.Lowest {
		return 0, c.locker.release(h, deadline)
	}
	// A closed page gets no new pointer. A merge closes a page first and then removes the pointers
	// to it, each under the lock of the page that has the pointer. This client holds the lock of
	// the page at address a. If the child is live now, a later merge of the child waits for this
	// lock and then finds the new pointer.
	if live, err := c.isLive(s, deadline); err != nil || !live {
		return 0, give(err)
	}
	c.edit.Begin(p)
	if c.mem.super.Shape.Kind == layout.Hardened && c.edit.Lower(s.key, s.child) {
		return 0, c.heals(h, a, s, deadline)
	}
	if p.FreeSlot() < 0 {
		if len(c.spare) == 0 {
			return 0, give(errRoom)
		}
		return 0, c.split(h, a, s.key, func(in *layout.Page) layout.Range { return in.PutChild(s.key, s.child) }, deadline)
	}
	c.edit.Add(p.PutChild(s.key, s.child))
	return 0, c.heals(h, a, s, deadline)
}

// heals writes the changed ranges (c.edit) of the page at address a, to which the separator s was
// added, and releases the lock h of the page.
func (c *changer) heals(h *held, a layout.Addr, s separator, deadline clock.Time) error {
	if err := c.locker.commit(h, a, c.edit.Ranges, deadline); err != nil {
		return err
	}
	c.mem.node.count(func(st *NodeStats) { st.Healed++ })
	if s.level == 1 {
		c.mem.node.cache.put(&c.mem.page, c.mem.rand)
	}
	return nil
}

// isLive reports whether the child of separator s is still a page of the tree, and its range begins
// at the key of s. In a tree that is not hardened it is always true: no page leaves such a tree.
func (c *changer) isLive(s separator, deadline clock.Time) (bool, error) {
	if c.mem.super.Shape.Kind != layout.Hardened {
		return true, nil
	}
	if err := c.mem.readPage(s.child, &c.sib, c.sibBuf, deadline); err != nil {
		return false, gone(err)
	}
	return c.sib.Stage == layout.Live && c.sib.Level == s.level-1 && c.sib.Lowest == s.key, nil
}

var errRoot = errors.New("another client has made a new root")

// newRoot makes a root above the present one. The present root must be one level below s.level.
func (c *changer) newRoot(s separator, deadline clock.Time) error {
	old, err := c.tree.readRoot(deadline)
	if err != nil {
		return err
	}
	if err := c.mem.readPage(old, &c.mem.page, c.mem.pageBuf, deadline); err != nil {
		return err
	}
	if c.mem.page.Level >= s.level {
		return errRoot
	}
	if c.mem.page.Level != s.level-1 || c.mem.page.Lowest != 0 {
		return fmt.Errorf("%w: root %v of level %d with lowest key %d", ErrBroken, old, c.mem.page.Level, c.mem.page.Lowest)
	}
	// s.child must be live before a new root names it. A merge may close s.child after this check.
	// That is safe: either the merge finds and removes the pointer in the new root, or the
	// compare-and-swap of the root word below fails. A merge does not take a page out of the tree
	// while no level is above the page (see redirect).
	if live, err := c.isLive(s, deadline); err != nil || !live {
		return err
	}
	if err := c.reserve(deadline); err != nil {
		return err
	}
	to, ok := c.fresh()
	if !ok {
		return c.mem.errFull()
	}
	at := to.At
	c.sib.Init(c.mem.super.Shape, c.sibBuf, layout.Header{
		Level: s.level, Highest: layout.MaxKey, Leftmost: old, Self: at, Generation: c.mem.super.Generation, Epoch: to.Epoch,
	})
	c.sib.PutChild(s.key, s.child)
	if err := c.writeFresh(at, c.sibBuf, deadline); err != nil {
		return err
	}
	for doubt := false; ; doubt = true {
		won, err := c.swapRoot(old, at, deadline)
		if err == nil && !won {
			// doubt is true if the outcome of an earlier attempt is unknown: then the page may be
			// in the tree by now.
			if !doubt {
				// The header is cleared, so that no client mistakes the page for one of the tree.
				clear(c.sibBuf[:layout.Line])
				if c.writeFresh(at, c.sibBuf[:layout.Line], deadline) == nil {
					c.spare = append(c.spare, to)
				} // if it fails, the WRITE may still be executed: the page is not reused
			}
			return errRoot
		}
		if err == nil {
			c.mem.node.setRoot(at)
			c.mem.node.count(func(s *NodeStats) { s.Roots++ })
			return nil
		}
		if err := c.mem.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// swapRoot makes page `at` the root, by a compare-and-swap of the root word from `old`. It returns
// true if the word has the value `at` now. So after an attempt with an unknown outcome, the caller
// calls it again: if that attempt has changed the word, swapRoot returns true.
func (c *changer) swapRoot(old, at layout.Addr, deadline clock.Time) (bool, error) {
	if err := c.mem.reach(0, deadline); err != nil {
		return false, err
	}
	was, err := c.mem.swap(c.mem.target(layout.At(0, layout.RootWord)), uint64(old), uint64(at), deadline)
	return layout.Addr(was) == old || layout.Addr(was) == at, err
}

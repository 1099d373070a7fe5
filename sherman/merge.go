package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A merge takes a page with few records or none out of the tree, in the steps that layout.Stage
// describes. Each step changes one page under its lock, and after each step the tree is valid. If a
// client dies during a merge, a closed page stays behind. The next writer that finds it takes it
// out of the tree.

// errClosed means that the page is leaving the tree and accepts no records.
var errClosed = errors.New("the page is being merged")

// maxMerges is the greatest number of nested calls of finish, each for the closed sibling or left
// neighbour of the page of the call before. It also bounds the loops of bypass and repair.
const maxMerges = 16

// finish completes the merge of the closed page at address a, whatever step it has reached. It
// returns nil when the page is out of the tree, or open again because its sibling has no room, also
// if another client has done this. It also returns nil when it gives up, after maxRestarts tries or
// because depth, the number of nested calls of finish, is maxMerges.
func (c *changer) finish(a layout.Addr, depth int, deadline clock.Time) error {
	wrote := c.locker.wrote // WRITEs of a merge are no effect of the operation (kv.ErrNoEffect)
	defer func() { c.locker.wrote = wrote }()
	for tries := 0; depth < maxMerges && tries < maxRestarts; tries++ {
		left, err := c.header(a, deadline)
		if err != nil || left.Stage != layout.Closed {
			return gone(err)
		}
		right, err := c.header(left.Sibling, deadline)
		switch {
		case errors.Is(err, errGone) && left.Cut > 0:
			err = nil // with a cut, `left` is still in the tree, and by now names another sibling
		case errors.Is(err, errGone):
			// The sibling has left the tree. Before a page leaves, its left neighbour in the chain
			// is made to name the next page (see bypass). The closed page still names the sibling,
			// so it was not the sibling's left neighbour any more: no page of the chain names the
			// closed page. The client that merged it died before the last step (retire), or was
			// fenced.
			if err = c.retire(left, deadline); err == nil {
				return nil
			}
		case err != nil:
		case left.Absorbed(right.Lowest) && left.Cut > 0:
			err = c.shrink(left, deadline)
		case left.Absorbed(right.Lowest):
			if err = c.takeOut(left, depth, deadline); err == nil {
				return nil
			}
		case left.RefusedBy(&right):
			err = c.open(left, deadline)
		case right.Stage == layout.Closed:
			err = c.finish(left.Sibling, depth+1, deadline)
		default:
			err = c.absorb(left, deadline)
		}
		// ErrBroken, for which gone returns nil, means that a page on the way has left the tree.
		// Then this client tries again to finish the merge: perhaps no page names the page at
		// address a any more, so that no other client would find it.
		if err != nil && !errors.Is(err, errOwner) && gone(err) != nil {
			return err
		}
		if tries > someRestarts {
			if c.mem.rt.Now() >= deadline {
				return kv.TimedOut(errClosed)
			}
			c.mem.rt.Sleep(pause)
		}
	}
	return nil
}

func (c *changer) header(a layout.Addr, deadline clock.Time) (layout.Header, error) {
	err := c.mem.readPage(a, &c.sib, c.sibBuf, deadline)
	return c.sib.Header, err
}

// beyond finishes the merge of the closed page at address a. It returns the address of the page
// that has taken over the range of the closed page, or 0 if the caller must search again.
func (c *changer) beyond(a layout.Addr, deadline clock.Time) (layout.Addr, error) {
	err := c.finish(a, 0, deadline)
	if err != nil && !errors.Is(err, errNoLevel) {
		return 0, err
	}
	left, right, err := c.pair(a, deadline)
	if err != nil {
		return 0, gone(err)
	}
	if left.Stage == layout.Closed && left.Absorbed(right.Lowest) {
		return left.Sibling, nil
	}
	if c.mem.rt.Now() >= deadline {
		return 0, kv.TimedOut(errClosed)
	}
	return 0, nil
}

// gone returns nil if err means that a page is not the expected one any more, because another
// client has taken it out of the tree. It returns other errors unchanged.
func gone(err error) error {
	if errors.Is(err, ErrBroken) {
		return nil
	}
	return err
}

// pair reads the headers of a page and of its sibling. If the page is not closed, pair does not
// read the sibling.
func (c *changer) pair(a layout.Addr, deadline clock.Time) (left, right layout.Header, err error) {
	if err = c.mem.readPage(a, &c.sib, c.sibBuf, deadline); err != nil || c.sib.Stage != layout.Closed {
		return c.sib.Header, right, err
	}
	left = c.sib.Header
	err = c.mem.readPage(left.Sibling, &c.sib, c.sibBuf, deadline)
	return left, c.sib.Header, err
}

// under locks the page at address a, reads it, and calls change, which changes it by c.edit. Then
// under writes these ranges and releases the lock.
func (c *changer) under(a layout.Addr, deadline clock.Time, change func(p *layout.Page) error) error {
	h, err := c.locker.acquire(a, deadline)
	if err != nil {
		return err
	}
	c.edit.Begin(&c.mem.page)
	if err = c.mem.readPage(a, &c.mem.page, c.mem.pageBuf, deadline); err == nil {
		err = change(&c.mem.page)
	}
	if err != nil {
		return errors.Join(err, ignoreRelease(c.locker.release(h, deadline)))
	}
	return c.locker.commit(h, a, c.edit.Ranges, deadline)
}

// repoint corrects the pointer w, which names a page too far to the left after merges and splits.
// It first raises the reach (layout.Header.Reach) of the page that the pointer should name, so that
// a later merge of that page finds the pointer.
func (c *changer) repoint(w pointer, deadline clock.Time) error {
	covers := func(p *layout.Page) bool { return p.Stage == layout.Live && p.Covers(w.key) }
	err := c.under(w.child, deadline, func(p *layout.Page) error {
		if covers(p) && max(p.Reach, p.Lowest) < w.key {
			c.edit.Extend(w.key)
		}
		return nil
	})
	if err != nil || c.mem.super.Shape.Kind != layout.Hardened {
		return err
	}
	return c.under(w.from, deadline, func(p *layout.Page) error {
		if err := c.mem.readPage(w.child, &c.sib, c.sibBuf, deadline); err != nil {
			return err
		}
		if p.Level == c.sib.Level+1 && p.Covers(w.key) && p.Stage == layout.Live && covers(&c.sib) && w.key <= max(c.sib.Reach, c.sib.Lowest) {
			c.edit.Replace(w.key, w.child)
		}
		return nil
	})
}

// absorb makes the sibling of the closed page `left` take over the range of `left`. If the sibling
// has no room for the records, absorb makes the sibling refuse the range. This is rare, because
// there was room when `left` was closed.
func (c *changer) absorb(left layout.Header, deadline clock.Time) error {
	return c.under(left.Sibling, deadline, func(p *layout.Page) error {
		if p.Stage != layout.Live || p.Lowest != left.Highest {
			return nil // the sibling has taken over the range already, or is leaving the tree itself
		}
		// This client holds the lock of the sibling. Without this lock no client may take over the
		// range.
		if err := c.mem.readPage(left.Self, &c.sib, c.sibBuf, deadline); err != nil {
			return err
		}
		if c.sib.Stage != layout.Closed || c.sib.Sibling != p.Self || c.sib.RefusedBy(&p.Header) {
			return nil
		}
		if !c.edit.Absorb(&c.sib) {
			c.edit.Refuse(&c.sib)
		}
		return nil
	})
}

// open makes the closed page `left` Live again, because the sibling has refused to take over the
// range of `left`.
func (c *changer) open(left layout.Header, deadline clock.Time) error {
	return c.under(left.Self, deadline, func(p *layout.Page) error {
		if p.Stage != layout.Closed {
			return nil // another client has opened the page again
		}
		// This client holds the lock of the closed page, and only the holder of that lock may open
		// the page. While the page is closed, its sibling cannot take back its refusal.
		if err := c.mem.readPage(p.Sibling, &c.sib, c.sibBuf, deadline); err != nil {
			return err
		}
		if p.RefusedBy(&c.sib.Header) {
			c.edit.Open()
		}
		return nil
	})
}

// merge merges the leaf at address a, in which this client has left few records, with its sibling.
// If the sibling has no room, merge tries the left neighbour: if that leaf has few records, merge
// closes it, and the leaf at address a takes over its range.
func (c *changer) merge(a layout.Addr, deadline clock.Time) error {
	lowest, closed, err := c.closeSparse(a, deadline)
	if err == nil && !closed && lowest > 0 {
		if a, err = c.tree.locate(lowest-1, 0, deadline); err == nil {
			_, closed, err = c.closeSparse(a, deadline)
		}
	}
	if err != nil || !closed {
		return err
	}
	return c.finish(a, 0, deadline)
}

// closeSparse closes the leaf at address a if it is sparse and its sibling can take over its
// records. It returns the leaf's lowest key and whether it has closed the leaf.
func (c *changer) closeSparse(a layout.Addr, deadline clock.Time) (lowest uint64, closed bool, err error) {
	err = c.under(a, deadline, func(p *layout.Page) error {
		if lowest = p.Lowest; !p.Sparse(p.Count()) {
			return nil
		}
		if err := c.mem.readPage(p.Sibling, &c.sib, c.sibBuf, deadline); err != nil || !p.MayMerge(&c.sib) {
			return gone(err)
		}
		closed = true
		c.edit.Close()
		return nil
	})
	if closed = closed && err == nil; closed {
		c.mem.node.count(func(s *NodeStats) { s.Joined++ })
	}
	return lowest, closed, err
}

// takeOut removes the pointers to the closed page `left`, whose range its sibling has taken over,
// and retires the page.
func (c *changer) takeOut(left layout.Header, depth int, deadline clock.Time) error {
	// Closed pages whose ranges this page has taken over must leave the tree first: as long as one
	// of them is in the tree, pointers to it may become pointers to this page. A closed page takes
	// over no further ranges.
	if err := c.bypass(left, false, depth, deadline); err != nil {
		return err
	}
	if err := c.redirect(left, depth, deadline); err != nil {
		return err
	}
	if err := c.bypass(left, true, depth, deadline); err != nil {
		return err
	}
	return c.retire(left, deadline)
}

// retire makes the closed page `left` Unused, and adds it to its server's list of unused pages. No
// page of the tree names it any more.
func (c *changer) retire(left layout.Header, deadline clock.Time) error {
	f, ok := layout.Fresh{}, false
	err := c.under(left.Self, deadline, func(p *layout.Page) error {
		// A closed page that is in the tree gets another Sibling when its sibling leaves the tree.
		// So if the Sibling is no longer that of `left`, the page is still in the tree, and must
		// not be retired.
		if p.Stage != layout.Closed || p.Sibling != left.Sibling {
			return errGone
		}
		f, ok = layout.Fresh{At: p.Self, Epoch: p.Epoch}, true
		c.edit.Retire(0)
		return nil
	})
	if err != nil || !ok {
		return err // if the outcome is unknown, the memory of the page is not reused
	}
	c.mem.node.count(func(s *NodeStats) { s.Merged++ })
	_ = c.push(f, deadline) // if it fails, the memory is not reused; the page has left the tree
	return nil
}

var errGone = fmt.Errorf("the page was taken out of the tree: %w", ErrBroken)

// stillClosed returns errGone unless the page at address a is closed. The caller holds the lock of
// a page that names the page at address a.
func (c *changer) stillClosed(a layout.Addr, deadline clock.Time) error {
	if err := c.mem.readPage(a, &c.sib, c.sibBuf, deadline); err != nil {
		return err
	}
	if c.sib.Stage != layout.Closed {
		return errGone
	}
	return nil
}

// closeInner closes the internal page p, whose lock the client holds, if p has only one child left
// and its sibling has a slot for another child. It returns the page's address, or 0 if it has not
// closed the page.
func (c *changer) closeInner(p *layout.Page, deadline clock.Time) (layout.Addr, error) {
	if p.Level == 0 || !p.CanClose(p.Count()) {
		return 0, nil
	}
	if err := c.mem.readPage(p.Sibling, &c.sib, c.sibBuf, deadline); err != nil || c.sib.Stage != layout.Live || c.sib.FreeSlot() < 0 {
		return 0, gone(err)
	}
	c.edit.Close()
	return p.Self, nil
}

// redirect makes all pointers to the closed page `left` name its sibling instead. They are in the
// pages of the level above that cover the keys from the lowest key of `left` to its reach. If such
// a page is closed, they may also be in that page's sibling, which has taken over its range.
func (c *changer) redirect(left layout.Header, depth int, deadline clock.Time) error {
	at, err := c.tree.descend(left.Lowest, left.Level+1, true, deadline)
	for err == nil && at != 0 {
		var next, emptied layout.Addr
		err = c.under(at, deadline, func(p *layout.Page) (err error) {
			if p.Level != left.Level+1 {
				return errGone
			}
			if err := c.stillClosed(left.Self, deadline); err != nil {
				return err
			}
			if c.edit.Redirect(left.Self, left.Sibling) {
				next = at
				return nil
			}
			if p.Highest <= max(left.Lowest, left.Reach) || p.Stage == layout.Closed {
				next = p.Sibling
			}
			if len(c.edit.Ranges) == 0 {
				return nil
			}
			emptied, err = c.closeInner(p, deadline)
			return err
		})
		if err == nil && len(c.edit.Ranges) > 0 && left.Level == 0 {
			c.mem.node.cache.put(&c.mem.page, c.mem.rand)
		}
		if err == nil && emptied != 0 && depth < maxMerges {
			c.emptied = append(c.emptied, emptied)
		}
		if errors.Is(err, errOwner) {
			err = nil
			continue
		}
		at = next
	}
	return err
}

// bypass works on the left neighbours of the closed page `left`. First it takes out of the tree the
// neighbours that are closed and whose ranges `left` has taken over. Then, if relink is true, it
// makes the remaining left neighbour name the sibling of `left`.
func (c *changer) bypass(left layout.Header, relink bool, depth int, deadline clock.Time) error {
	for range maxMerges {
		at, err := c.tree.descend(left.Lowest-1, left.Level, true, deadline)
		for err == nil {
			// the left neighbour is the page that covers the greatest key below the range
			if err = c.mem.readPage(at, &c.mem.page, c.mem.pageBuf, deadline); err != nil || c.mem.page.Covers(left.Lowest-1) || c.mem.page.Sibling == 0 {
				break
			}
			at = c.mem.page.Sibling
		}
		if err != nil {
			return err
		}
		next, emptied := c.mem.page.Sibling, layout.Addr(0)
		if next == left.Self && !relink {
			return nil
		}
		if next == left.Self {
			err = c.under(at, deadline, func(p *layout.Page) (err error) {
				if p.Sibling != left.Self {
					return nil
				}
				if err := c.stillClosed(left.Self, deadline); err != nil {
					return err
				}
				c.edit.Bypass(c.sib.Sibling)
				// p may still be open because its former sibling had no free slot
				emptied, err = c.closeInner(p, deadline)
				return err
			})
			if err == nil && emptied != 0 {
				c.emptied = append(c.emptied, emptied)
			}
			if err != nil && !errors.Is(err, errOwner) {
				return err
			}
			continue // the next iteration reads the left neighbour again: does it still name the closed page?
		}
		closed, after, err := c.pair(next, deadline)
		switch {
		case err != nil:
			if gone(err) != nil {
				return err
			}
		case closed.Stage != layout.Closed || !closed.Absorbed(after.Lowest):
			return nil
		default: // the chain still leads through the closed page `next`: take it out first
			if err := c.finish(next, depth+1, deadline); err != nil {
				return err
			}
		}
	}
	return errGone
}

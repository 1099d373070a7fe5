package sherman

import (
	"errors"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// When no page is left for a split, a full leaf gives some of its records to its sibling, in the
// steps of a merge (layout.Stage). First the leaf is closed, with a cut: the key from which on its
// records leave. Then the sibling takes over the range from the cut on, with copies of the records.
// Then the leaf is opened again, and ends at the cut. If the sibling is full, too, it first gives
// records to its own sibling, and so on. Records move to the right only, because the ends of a
// page's range never increase.
//
// If all leaves to the right are full, a full leaf gives its smallest records to the leaf on its
// left by a split and a merge (rotate). The page for the split is the last one of a server's list
// of unused pages, which other splits leave there.

const (
	// maxShift is the greatest number of leaves that are changed to make room in one.
	maxShift = 64
	// maxShifts is how many times one operation tries to make room. It may need several tries,
	// because other clients may use the room first. A try that completes a step of another client
	// does not count.
	maxShifts = 16
)

// shifted is the outcome of an attempt to make room in a full leaf.
type shifted uint8

const (
	// noRoom means that no leaf within reach has room.
	noRoom shifted = iota
	// helped means that the client has completed a step that another client had begun.
	helped
	// moved means that records have moved, or that another client has changed a leaf meanwhile.
	moved
)

// mover makes room in a full leaf for the record that an operation adds.
type mover struct {
	pages *changer
	// shifts counts how many times the operation has tried to make room in a full leaf.
	shifts int
}

// room gets what an operation needs to add a record with a key to the full page at address a: a
// page for a split, or else, if the page is a leaf, a free slot in the page.
func (c *mover) room(a layout.Addr, key uint64, deadline clock.Time) error {
	level := c.pages.mem.page.Level // level of the page at a, which is the page that the client has read last
	full := c.pages.reserve(deadline)
	if !errors.Is(full, kv.ErrFull) || level > 0 || c.pages.mem.super.Shape.Kind != layout.Hardened || c.shifts >= maxShifts {
		return full
	}
	wrote := c.pages.locker.wrote // WRITEs that only move records are no effect of the operation (kv.ErrNoEffect)
	defer func() { c.pages.locker.wrote = wrote }()
	out, err := c.shift(a, key, deadline)
	if err == nil && out == noRoom {
		out, err = c.shiftLeft(a, key, deadline)
	}
	if out != helped || err != nil {
		c.shifts++
	}
	switch {
	case errors.Is(err, errNoLevel): // finish found no level above the leaves: the caller tries again
		return nil
	case err == nil && out == noRoom:
		return full
	}
	return gone(err)
}

// shift makes room in the full leaf at address a. It returns noRoom if the next maxShift leaves
// have no room either.
func (c *mover) shift(a layout.Addr, key uint64, deadline clock.Time) (shifted, error) {
	path := make([]layout.Addr, 0, maxShift)
	for {
		if open, err := c.look(a, deadline); !open {
			return helped, err
		}
		p := &c.pages.sib
		switch {
		case p.FreeSlot() >= 0:
			for i := len(path) - 1; i >= 0; i-- {
				if ok, err := c.cede(path[i], key, deadline); err != nil || !ok {
					return moved, err
				}
			}
			return moved, nil
		case p.Sibling == 0 || len(path) == maxShift:
			return noRoom, nil
		}
		path = append(path, a)
		a = p.Sibling
	}
}

// look reads the leaf at address a into c.pages.sib. open is false after an error, and if the leaf is
// closed: then another client, which may have died, was making room there or merging the leaf. In
// that case look has completed the step of that client.
func (c *mover) look(a layout.Addr, deadline clock.Time) (open bool, err error) {
	switch err := c.pages.mem.readPage(a, &c.pages.sib, c.pages.sibBuf, deadline); {
	case err != nil:
		return false, err
	case c.pages.sib.Level != 0:
		return false, ErrBroken
	case c.pages.sib.Stage == layout.Closed:
		return false, c.pages.finish(a, 0, deadline)
	}
	return true, nil
}

// cede gives records of the leaf at address a to its sibling, if the leaf is still full and the
// sibling has room. Half as many records move as the sibling has free slots. cede returns false if
// another client has changed one of the two leaves, so that no records move.
func (c *mover) cede(a layout.Addr, key uint64, deadline clock.Time) (bool, error) {
	closed := false
	err := c.pages.under(a, deadline, func(p *layout.Page) error {
		if p.Level != 0 || p.Stage != layout.Live || p.Sibling == 0 || p.FreeSlot() >= 0 {
			return nil
		}
		if err := c.pages.mem.readPage(p.Sibling, &c.pages.sib, c.pages.sibBuf, deadline); err != nil {
			return gone(err)
		}
		free := c.pages.sib.Slots() - c.pages.sib.Count()
		if c.pages.sib.Stage == layout.Live && c.pages.sib.Lowest == p.Highest && free > 0 {
			closed = true
			c.pages.edit.Cede(c.pages.edit.HighCut(key, free))
		}
		return nil
	})
	if err != nil || !closed {
		return false, err
	}
	return true, c.pages.finish(a, 0, deadline)
}

// shrink opens the closed leaf `left`, whose sibling has taken over the range from the cut on. The
// leaf ends at the cut.
func (c *changer) shrink(left layout.Header, deadline clock.Time) error {
	return c.under(left.Self, deadline, func(p *layout.Page) error {
		if p.Stage != layout.Closed || p.Cut == 0 {
			return nil // another client has opened the leaf again
		}
		// This client holds the lock of the closed page, so no other client opens the page
		// meanwhile. The lowest key of its sibling never increases.
		if err := c.mem.readPage(p.Sibling, &c.sib, c.sibBuf, deadline); err != nil {
			return err
		}
		if p.Absorbed(c.sib.Lowest) {
			c.tree.heal = separator{1, p.Cut, p.Sibling}
			c.edit.Shrink()
		}
		return nil
	})
}

// shiftLeft makes room in the full leaf at address a by moving records to the left. It returns
// noRoom if the maxShift leaves to its left have no room.
func (c *mover) shiftLeft(a layout.Addr, key uint64, deadline clock.Time) (shifted, error) {
	path := make([]layout.Addr, 0, maxShift)
	for {
		if open, err := c.look(a, deadline); !open {
			return helped, err
		}
		p := &c.pages.sib
		switch {
		case p.FreeSlot() >= 0 && len(path) == 0:
			return moved, nil // another client has made room
		case p.Lowest == 0: // p is the first leaf of the tree; rotate would close it, which is not allowed
			return noRoom, nil
		case p.FreeSlot() >= 0:
			for i := len(path) - 1; i >= 0; i-- {
				if ok, err := c.rotate(path[i], key, deadline); err != nil || !ok {
					return noRoom, err
				}
			}
			return moved, nil
		case len(path) == maxShift:
			return noRoom, nil
		}
		path = append(path, a)
		var err error
		if a, err = c.leftOf(p.Lowest, deadline); err != nil {
			return noRoom, err
		}
	}
}

// leftOf returns the address of the leaf that ends at the key lowest, and reads it into c.pages.mem.page.
func (c *mover) leftOf(lowest uint64, deadline clock.Time) (layout.Addr, error) {
	a, err := c.pages.tree.descend(lowest-1, 0, true, deadline)
	if err != nil {
		return 0, err
	}
	return c.pages.tree.covering(a, lowest-1, 0, deadline)
}

// rotate moves records of the full leaf at address a to the leaf on its left, as many as half of
// that leaf's free slots. To do so it splits the leaf at address a, so that only these records stay
// there, and then merges the left leaf with it. It returns false if there is no page for the split.
func (c *mover) rotate(a layout.Addr, key uint64, deadline clock.Time) (bool, error) {
	if err := c.pages.mem.readPage(a, &c.pages.sib, c.pages.sibBuf, deadline); err != nil {
		return false, err
	}
	if c.pages.sib.Level != 0 || c.pages.sib.Stage != layout.Live || c.pages.sib.Lowest == 0 {
		return true, nil // another client changes the leaf
	}
	left, err := c.leftOf(c.pages.sib.Lowest, deadline)
	if err != nil {
		return false, err
	}
	free := c.pages.mem.page.Slots() - c.pages.mem.page.Count()
	if free == 0 || c.pages.mem.page.Sibling != a || !c.pages.mem.page.CanClose(0) {
		return true, nil
	}
	to, ok := c.lastPage(deadline)
	if !ok {
		return false, nil
	}
	split := separator{}
	err = c.pages.under(a, deadline, func(p *layout.Page) error {
		if p.Level != 0 || p.Stage != layout.Live || p.FreeSlot() >= 0 {
			return nil
		}
		split = separator{1, c.pages.edit.LowCut(key, free), to.At}
		c.pages.edit.SplitAt(split.key, to, c.pages.sibBuf, &c.pages.sib)
		return c.pages.writeFresh(to.At, c.pages.sibBuf, deadline)
	})
	if split.level == 0 || errors.Is(err, errOwner) { // no page names the new page
		return true, errors.Join(err, c.pages.push(to, deadline))
	}
	if err != nil {
		return false, err // if the outcome is unknown, the new page is not reused
	}
	c.pages.mem.node.count(func(s *NodeStats) { s.Splits++ })
	c.pages.tree.heal = split
	c.pages.adoptAll(deadline)
	closed := false
	err = c.pages.under(left, deadline, func(p *layout.Page) error {
		if p.Level != 0 || p.Sibling != a || !p.CanClose(0) {
			return nil
		}
		if err := c.pages.mem.readPage(a, &c.pages.sib, c.pages.sibBuf, deadline); err != nil {
			return gone(err)
		}
		if c.pages.sib.Stage == layout.Live && c.pages.sib.Lowest == p.Highest && p.Count()+c.pages.sib.Count() <= p.Slots() {
			closed = true
			c.pages.edit.Close()
		}
		return nil
	})
	if err == nil && closed {
		err = c.pages.finish(left, 0, deadline)
	}
	return true, err
}

// lastPage takes a page of the servers' lists of unused pages, even the last page of a list. It
// returns false if all lists are empty.
func (c *mover) lastPage(deadline clock.Time) (layout.Fresh, bool) {
	for i := range c.pages.mem.links {
		if err := c.pages.pop(i, true, deadline); err == nil {
			return c.pages.fresh()
		}
	}
	return layout.Fresh{}, false
}

package sherman

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// changer changes pages under their locks, splits them, and adds separators to their parents.
type changer struct {
	mem    *memory
	locker *locker
	tree   *walker
	moves  mover
	// spare are pages that this client will use for its next splits. emptied are pages that it has
	// closed, and that repair takes out of the tree. sparse is a leaf in which the operation has
	// left few records, or 0.
	spare   []layout.Fresh
	emptied []layout.Addr
	sparse  layout.Addr
	// sib is the new page of a split, or a page that is read beside mem.page; its bytes are in
	// sibBuf.
	sib    layout.Page
	sibBuf []byte
	// edit is the present change of a page. order is memory that the methods use again.
	edit  layout.Edit
	order []uint16
}

// verb is the kind of a write. Put, Insert, Upsert and Delete differ in how they treat a key that
// exists and one that does not.
type verb uint8

const (
	put verb = iota
	insert
	upsert
	remove
)

// Put replaces the value of a key that exists. It takes three round trips (lock, READ, WRITE with
// the release of the lock), or two if the lock is handed over.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.pages.modify(put, key, value, deadline)
}

// Insert adds a key that does not exist yet, with a value.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.pages.modify(insert, key, value, deadline)
}

// Upsert sets the value of a key, whether the key exists or not.
func (c *Client) Upsert(key uint64, value []byte, deadline clock.Time) error {
	return c.pages.modify(upsert, key, value, deadline)
}

// Delete removes a key. Later inserts reuse its slot. A hardened page without keys leaves the tree,
// unless it is the first or last leaf.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.pages.modify(remove, key, nil, deadline)
}

// errZeros refuses a value that is all zeros: in a published tree, a record with such a value is an
// empty slot.
var errZeros = errors.New("a published tree cannot store a value of zeros: it marks an empty slot")

func (c *changer) check(v verb, value []byte) error {
	switch {
	case v == remove:
	case len(value) > c.mem.super.Shape.Value:
		return fmt.Errorf("%w: %d bytes, the tree was formatted for %d", kv.ErrTooLarge, len(value), c.mem.super.Shape.Value)
	case c.mem.super.Shape.Kind == layout.Published && !slices.ContainsFunc(value, func(b byte) bool { return b != 0 }):
		return errZeros
	}
	return nil
}

// modify changes one record of a leaf. If it fails and the record was certainly not changed, it
// adds kv.ErrNoEffect to the error.
func (c *changer) modify(v verb, key uint64, value []byte, deadline clock.Time) error {
	c.locker.wrote, c.emptied, c.sparse, c.moves.shifts = false, c.emptied[:0], 0, 0
	err := c.attempt(v, key, value, deadline)
	if len(c.spare) > 0 { // another client of the node may need the pages first
		c.mem.node.keepPages(c.spare...)
		c.spare = c.spare[:0]
	}
	if err == nil || c.locker.wrote || errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrExists) {
		return err
	}
	return noEffect(err)
}

// noEffect adds kv.ErrNoEffect to the error of an operation that has posted no WRITE to a page that
// readers can reach.
func noEffect(err error) error { return fmt.Errorf("%w (%w)", err, kv.ErrNoEffect) }

// attempt does the work of modify, but does not add kv.ErrNoEffect. After an error, c.wrote says
// whether the record may have been written.
func (c *changer) attempt(v verb, key uint64, value []byte, deadline clock.Time) error {
	if err := c.tree.begin(deadline); err != nil {
		return err
	}
	if err := c.check(v, value); err != nil {
		return err
	}
	err := c.onPage(
		key, func() (layout.Addr, error) { return c.tree.locate(key, 0, deadline) },
		func(a layout.Addr) (layout.Addr, error) { return c.change(v, a, key, value, deadline) },
		func(err error) (bool, error) { return false, c.tree.restart(err, key, deadline) }, deadline,
	)
	if err == nil {
		c.repair(deadline)
	}
	return err
}

// onPage changes the page that covers a key. It calls `find` to find the page, and `change` to
// change it; `change` returns 0, or the next page to try. onPage repeats both as long as another
// try may succeed. After errRoom it first makes room (mover.room), after errClosed it finishes the
// merge of the page (beyond). If `find` or `change` returns an error other than these two and
// errOwner, onPage calls `other`. Then onPage ends if `other` returns done or an error; otherwise
// it begins again with `find`.
func (c *changer) onPage(
	key uint64, find func() (layout.Addr, error), change func(layout.Addr) (next layout.Addr, err error), other func(error) (done bool, err error), deadline clock.Time,
) error {
	var a layout.Addr // address of the page to change; 0 means that find must find it
	for {
		var next layout.Addr
		var err error
		if a == 0 {
			a, err = find()
		}
		if err == nil {
			next, err = change(a)
		}
		done := false
		switch {
		case err == nil:
			a, done = next, next == 0
		case errors.Is(err, errOwner):
			continue
		case errors.Is(err, errRoom):
			err = c.moves.room(a, key, deadline)
		case errors.Is(err, errClosed):
			a, err = c.beyond(a, deadline)
		default:
			a = 0
			done, err = other(err)
		}
		if done || err != nil && !errors.Is(err, errOwner) {
			return err
		}
	}
}

// change executes the write v if the page at address a covers the key, and returns 0. Otherwise it
// returns the page to try next.
func (c *changer) change(v verb, a layout.Addr, key uint64, value []byte, deadline clock.Time) (next layout.Addr, err error) {
	h, err := c.locker.acquire(a, deadline)
	if err != nil {
		return 0, err
	}
	if err := c.mem.readPage(a, &c.mem.page, c.mem.pageBuf, deadline); err != nil {
		return 0, errors.Join(err, ignoreRelease(c.locker.release(h, deadline)))
	}
	p := &c.mem.page
	switch {
	case p.Level != 0 || key < p.Lowest:
		return 0, errors.Join(fmt.Errorf("%w: page %v on the path to key %d", ErrBroken, a, key), ignoreRelease(c.locker.release(h, deadline)))
	case !p.Covers(key):
		if next = p.Sibling; next == 0 {
			return 0, errors.Join(errEnds(a, key), ignoreRelease(c.locker.release(h, deadline)))
		}
		c.tree.moved(1, separator{1, p.Highest, next})
		return next, c.locker.release(h, deadline)
	case p.Stage == layout.Closed:
		return 0, errors.Join(errClosed, ignoreRelease(c.locker.release(h, deadline)))
	}
	slot, _, there, _ := p.Find(key)
	if err := refusal(v, there); err != nil {
		return 0, errors.Join(err, ignoreRelease(c.locker.release(h, deadline)))
	}
	c.edit.Begin(p)
	switch {
	case v == remove:
		c.edit.Add(p.Remove(slot))
		if p.CanClose(p.Count()) {
			c.edit.Close()
		}
	case there:
		c.edit.Add(p.Put(slot, key, value))
	default:
		if slot = p.FreeSlot(); slot < 0 {
			if len(c.spare) == 0 {
				return 0, errors.Join(errRoom, ignoreRelease(c.locker.release(h, deadline)))
			}
			return 0, c.split(h, a, key, func(in *layout.Page) layout.Range { return in.Put(in.FreeSlot(), key, value) }, deadline)
		}
		c.edit.Add(p.Put(slot, key, value))
	}
	if err := c.locker.commit(h, a, c.edit.Ranges, deadline); err != nil {
		return 0, err
	}
	switch n := p.Count(); {
	case p.Stage == layout.Closed:
		c.emptied = append(c.emptied, a)
	case v == remove && bits.OnesCount(uint(n)) == 1 && p.Sparse(n):
		// The client tries a merge only when the number of records is a power of 2, not after each
		// Delete: the sibling may have no room.
		c.sparse = a
	}
	return 0, nil
}

// refusal returns the error with which a write v is refused: an insert of a key that exists, or a
// put or remove of a key that does not. `there` says whether the key exists. refusal returns nil if
// the write may take place.
func refusal(v verb, there bool) error {
	switch {
	case v == insert && there:
		return kv.ErrExists
	case (v == put || v == remove) && !there:
		return kv.ErrNotFound
	}
	return nil
}

// ignoreRelease drops the error of a release of a lock. The outcome of the operation itself is
// known, and stays known even if the outcome of the release is not.
func ignoreRelease(error) error { return nil }

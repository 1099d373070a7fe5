package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// verb is what a write does with a record that is there, or is not.
type verb uint8

const (
	put verb = iota
	insert
	upsert
	remove
)

// Put replaces the value of a key that exists: lock, read, write with release. Three round trips, two if the lock is handed over.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.modify(put, key, value, deadline)
}

// Insert gives a new key a value.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.modify(insert, key, value, deadline)
}

// Upsert gives a key a value, whether it has one or not.
func (c *Client) Upsert(key uint64, value []byte, deadline clock.Time) error {
	return c.modify(upsert, key, value, deadline)
}

// Delete takes a key away. Its slot is used again; pages are never merged or freed.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.modify(remove, key, nil, deadline)
}

// errZeros says that a faithful tree takes zeros for an empty slot.
var errZeros = errors.New("a value of zeros stands for none in a faithful tree")

func (c *Client) check(v verb, value []byte) error {
	switch {
	case v == remove:
	case len(value) > c.super.Shape.Value:
		return fmt.Errorf("%w: %d bytes, the tree was formatted for %d", kv.ErrTooLarge, len(value), c.super.Shape.Value)
	case c.super.Shape.Kind == layout.Faithful:
		for _, b := range value {
			if b != 0 {
				return nil
			}
		}
		return errZeros
	}
	return nil
}

// modify changes one record of a leaf, or says whether it may have done so.
func (c *Client) modify(v verb, key uint64, value []byte, deadline clock.Time) error {
	c.wrote = false
	err := c.attempt(v, key, value, deadline)
	if err == nil || c.wrote || errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrExists) {
		return err
	}
	return noEffect(err)
}

// noEffect marks the error of an operation that posted no WRITE that a reader could see.
func noEffect(err error) error { return fmt.Errorf("%w (%w)", err, kv.ErrNoEffect) }

// attempt is modify, whose errors leave open whether the record was written; c.wrote tells.
func (c *Client) attempt(v verb, key uint64, value []byte, deadline clock.Time) error {
	if err := c.begin(deadline); err != nil {
		return err
	}
	if err := c.check(v, value); err != nil {
		return err
	}
	a, err := c.locate(key, 0, deadline)
	for err == nil {
		if v == insert || v == upsert {
			if err = c.reserve(deadline); err != nil {
				break
			}
		}
		var next layout.Addr
		next, err = c.change(v, a, key, value, deadline)
		if err != nil && !errors.Is(err, errOwner) {
			break
		}
		if err == nil && next == 0 {
			c.mend(deadline)
			return nil
		}
		if err = nil; next != 0 {
			a = next
		}
	}
	return err
}

// change does the write if the page at a covers the key; otherwise it returns the page where to try next.
func (c *Client) change(v verb, a layout.Addr, key uint64, value []byte, deadline clock.Time) (next layout.Addr, err error) {
	h, err := c.acquire(a, deadline)
	if err != nil {
		return 0, err
	}
	if err := c.readPage(a, &c.page, c.pageBuf, deadline); err != nil {
		return 0, errors.Join(err, c.release(h, deadline))
	}
	p := &c.page
	switch {
	case p.Level != 0 || key < p.Lowest:
		return 0, errors.Join(fmt.Errorf("%w: page %v on the way to key %d", ErrBroken, a, key), c.release(h, deadline))
	case !p.Covers(key):
		if next = p.Sibling; next == 0 {
			return 0, errors.Join(errEnds(a, key), c.release(h, deadline))
		}
		c.moved(1, separator{1, p.Highest, next})
		return next, c.release(h, deadline)
	}
	slot, _, there, _ := p.Find(key)
	if err := refusal(v, there); err != nil {
		return 0, errors.Join(err, keepUnknown(c.release(h, deadline)))
	}
	c.ranges = c.ranges[:0]
	switch {
	case v == remove:
		c.ranges = append(c.ranges, p.Remove(slot))
	case there:
		c.ranges = append(c.ranges, p.Put(slot, key, value))
	default:
		if slot = p.FreeSlot(); slot < 0 {
			return 0, c.split(h, a, key, value, 0, deadline)
		}
		c.ranges = append(c.ranges, p.Put(slot, key, value))
	}
	return 0, c.commit(h, a, c.ranges, deadline)
}

// refusal is the answer to a write that changes nothing.
func refusal(v verb, there bool) error {
	switch {
	case v == insert && there:
		return kv.ErrExists
	case (v == put || v == remove) && !there:
		return kv.ErrNotFound
	}
	return nil
}

// keepUnknown drops what a release says: the answer of an operation that writes nothing is known anyhow.
func keepUnknown(error) error { return nil }

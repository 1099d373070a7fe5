package pdpm

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// errKey: there is no place for this key.
var errKey = errors.New("the key 2^64-1 cannot be inserted")

// Get implements kv.Store.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.begin(0, deadline); err != nil {
		return dst[:0], err
	}
	rt := c.conn.Runtime()
	for w := (watch{}); ; c.cost.Retries++ {
		err := c.ready(deadline)
		var e entry
		if err == nil {
			e, err = c.find(key, false, deadline)
		}
		if err == nil {
			err = c.read(e, lockLen+c.shape.copyLen(), deadline)
		}
		if err == nil {
			if v, whole := valueOf(c.buf[lockLen:], key); whole {
				if !alive(c.buf[lockLen:]) {
					return dst[:0], kv.ErrNotFound
				}
				return append(dst[:0], v...), nil
			}
			if holder := lockOf(c.buf); w.stuck(holder, rt.Now(), c.shape.Lease) {
				err = c.relieve(e, key, holder, deadline)
			}
		}
		switch {
		case refused(err):
			c.stray = true
		case err != nil:
			return dst[:0], err
		}
		w.pause(rt, rt.Rand().Int64N)
	}
}

// relieve takes the lock of a torn copy from its holder, restores the copy and releases the lock.
func (c *Client) relieve(e entry, key uint64, holder tag, deadline clock.Time) error {
	c.locks++
	took, err := c.takeOver(e, key, holder, makeTag(c.conn.Owner(), c.locks), deadline)
	if took {
		c.unlock(e, deadline)
	}
	return err
}

// Put implements kv.Store.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.change(key, change{value: value}, deadline)
}

// Insert implements kv.Store.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.change(key, change{value: value, insert: true}, deadline)
}

// Delete implements kv.Store.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.change(key, change{deleted: true}, deadline)
}

// change is what a PUT, an INSERT (insert) or a DELETE (deleted) makes of a key.
type change struct {
	value           []byte
	insert, deleted bool
}

func (c *Client) change(key uint64, x change, deadline clock.Time) error {
	if err := c.begin(len(x.value), deadline); err != nil {
		return err
	}
	if key+1 == 0 && x.insert {
		return errors.Join(errKey, kv.ErrNoEffect)
	}
	for ; ; c.cost.Retries++ {
		var head [headLen]byte
		var own tag
		err := c.ready(deadline)
		var e entry
		if err == nil {
			e, err = c.find(key, x.insert, deadline)
		}
		if err == nil {
			own, err = c.lock(e, key, head[:], deadline)
		}
		switch {
		case refused(err): // the lock, if the client has it, is stray
			c.stray = true
			continue
		case err != nil:
			return errors.Join(err, kv.ErrNoEffect)
		case alive(head[:]) && x.insert:
			c.unlock(e, deadline)
			return kv.ErrExists
		case !alive(head[:]) && !x.insert:
			c.unlock(e, deadline)
			return kv.ErrNotFound
		}
		c.made = putCopy(c.made, own, key, x.value, x.deleted)
		err = c.conn.Write(e.server, e.at+lockLen+uint64(c.shape.copyLen()), c.made, deadline)
		if err == nil {
			err = c.conn.Write(e.server, e.at+lockLen, c.made, deadline)
		}
		if err != nil {
			c.leave()
			return unknown(err)
		}
		c.unlock(e, deadline)
		return nil
	}
}

// unknown is the error of a change whose redo copy may be whole: it happens, or it does not.
func unknown(err error) error {
	if refused(err) {
		return errors.Join(kv.ErrTimeout, errors.New("another client took the lock over"))
	}
	return errors.Join(err, kv.ErrTimeout)
}

// begin starts an operation with a value of n bytes.
func (c *Client) begin(n int, deadline clock.Time) error {
	c.cost, c.before = kv.Cost{}, c.conn.RTTs()
	switch {
	case c.ended:
		return kv.ErrClosed
	case n > c.shape.Value:
		err := fmt.Errorf("%w: %d bytes, and the table is for up to %d; `rdmalab pdpm-direct start --fresh --value %d` makes an empty one for them",
			kv.ErrTooLarge, n, c.shape.Value, n)
		return errors.Join(err, kv.ErrNoEffect)
	case c.conn.Runtime().Now() >= deadline:
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	return nil
}

// ready gives the client another number if it needs one.
func (c *Client) ready(deadline clock.Time) error {
	if c.conn.Runtime().Now() >= deadline {
		return kv.ErrTimeout
	}
	if !c.stray && c.locks < 1<<32-1 {
		return nil
	}
	if err := form.Number(c.conn, deadline); err != nil {
		return err
	}
	c.stray, c.locks = false, 0
	return nil
}

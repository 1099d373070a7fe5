package pdpm

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.Begin(0, deadline); err != nil {
		return dst[:0], err
	}
	rt := c.Conn.Runtime()
	for w := (watch{}); ; c.Retries++ {
		err := c.ready(key, deadline)
		var e entry
		if err == nil {
			e, err = c.find(key, false, deadline)
		}
		asked := rt.Now()
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
			if holder := lockOf(c.buf); w.stuck(holder, asked, rt.Now(), c.shape.Lease) {
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

// relieve is called when a copy stays torn under a lock. It takes the lock over from its holder,
// restores the copy and releases the lock.
func (c *Client) relieve(e entry, key uint64, holder tag, deadline clock.Time) error {
	c.locks++
	took, err := c.takeOver(e, key, holder, makeTag(c.Conn.Owner(), c.locks), deadline)
	if took {
		c.unlock(e, deadline)
	}
	return err
}

func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.change(key, change{value: value}, deadline)
}

func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.change(key, change{value: value, insert: true}, deadline)
}

func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.change(key, change{deleted: true}, deadline)
}

// change describes a PUT, an INSERT (insert is true) or a DELETE (deleted is true).
type change struct {
	value           []byte
	insert, deleted bool
}

func (c *Client) change(key uint64, x change, deadline clock.Time) error {
	if err := c.Begin(len(x.value), deadline); err != nil {
		return err
	}
	for ; ; c.Retries++ {
		var head [headLen]byte
		var own tag
		err := c.ready(key, deadline)
		var e entry
		if err == nil {
			e, err = c.find(key, x.insert, deadline)
		}
		if err == nil {
			own, err = c.lock(e, key, head[:], deadline)
		}
		switch {
		case refused(err): // the client may have the lock under its old number: ready gives it another number
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
		err = c.Conn.Write(e.server, e.at+lockLen+uint64(c.shape.copyLen()), c.made, deadline)
		if err == nil {
			err = c.Conn.Write(e.server, e.at+lockLen, c.made, deadline)
		}
		if err != nil {
			c.leave()
			return unknown(err)
		}
		c.unlock(e, deadline)
		return nil
	}
}

// unknown returns the error of a change whose outcome is unknown: if the redo copy of the change is
// whole, another client may complete the change.
func unknown(err error) error {
	if refused(err) {
		return errors.Join(kv.ErrTimeout, errors.New("another client took the lock over"))
	}
	return errors.Join(err, kv.ErrTimeout)
}

// ready is called before an attempt at an operation on a key. It gives the client another number if
// it needs one: because it may have left a lock behind, or because its count of locks is exhausted.
func (c *Client) ready(key uint64, deadline clock.Time) error {
	if c.Conn.Runtime().Now() >= deadline {
		return kv.ErrTimeout
	}
	if !c.stray && c.locks < 1<<32-1 {
		return nil
	}
	err := direct.Number(c.Conn, deadline)
	if errors.Is(err, kv.ErrLost) && c.HolderOf(key) != 0 {
		// Server 0, which counts clients, has lost its memory, and not the server of the key.
		return fmt.Errorf("%w: the client gets no other number: %s", kv.ErrTimeout, err.Error())
	}
	if err != nil {
		return err
	}
	c.stray, c.locks = false, 0
	return nil
}

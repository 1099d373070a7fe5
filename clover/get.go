package clover

import (
	"errors"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Get reads the newest value of key. It takes one round trip if the client knows the newest node.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.appender.begin(deadline); err != nil {
		return dst[:0], err
	}
	for {
		value, err := c.finder.get(key, dst[:0], deadline)
		if err == nil || errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrTooLarge) {
			return value, err
		}
		if err := c.session.prepareRetry(err, deadline); err != nil {
			return dst[:0], err
		}
	}
}

// get follows the chain of a key once, to the newest node, and returns its value.
func (c *finder) get(key uint64, dst []byte, deadline clock.Time) (_ []byte, err error) {
	k, err := c.locate(key, deadline)
	if err != nil {
		return dst, err
	}
	slot, before := c.firstSlot(&k), layout.Location{}
	var path walk
	defer func() { err = path.explain(err) }()
	for {
		if k.epoch != c.session.lease.epoch {
			if k, err = c.query(key, deadline); err != nil {
				return dst, err
			}
			path.asked()
		}
		path.step(k.at)
		header, value, shortcut, err := c.readNode(key, k, slot, deadline)
		if isStale(err) || err == nil && header.EntryVersion() != k.at.Version {
			c.cache.drop(key)
			if k, err = c.query(key, deadline); err != nil {
				return dst, err
			}
			path.asked()
			slot = -1 // a stale shortcut would lead to the same node again
			if c.session.rt.Now() >= deadline {
				return dst, kv.ErrTimeout
			}
			continue
		}
		if errors.Is(err, kv.ErrTooLarge) {
			if k, err = c.passLarge(key, k, err, deadline); err != nil {
				return dst, err
			}
			slot = -1
			continue
		}
		if err != nil {
			return dst, err
		}
		if header.IsTombstone() && !k.fresh {
			if k, err = c.query(key, deadline); err != nil {
				c.cache.drop(key)
				return dst, err
			}
			path.asked()
			slot = -1
			continue
		}
		next, more := header.Next()
		switch l, ok := k.near(shortcut); {
		case header.IsTombstone():
			c.cache.drop(key)
			return dst, kv.ErrNotFound
		case !more:
			c.remember(key, k)
			return append(dst, value...), nil
		case ok && slot >= 0 && l != k.at && l != before:
			// The shortcut's node is nearer to the end of the chain, or the shortcut is stale. A
			// stale shortcut does no harm. Either its node has another key or another version, or
			// it leads to the tombstone of an older chain of the key. Because k.fresh is false, the
			// client does not trust that tombstone, and asks the metadata server.
			k.at, k.fresh = l, false
		case before.IsZero() && c.session.cfg.LazyShortcut:
			k.at, before, slot = next, k.at, int(k.slot)
			continue
		default:
			k.at = next
		}
		slot = -1
	}
}

// firstSlot returns the slot whose shortcut a GET reads together with the first node, or -1 if the
// GET reads no shortcut with it.
func (c *finder) firstSlot(k *known) int {
	if c.session.cfg.LazyShortcut {
		return -1
	}
	return int(k.slot)
}

// passLarge is called when a node is too long for this client's buffer. It reads only the node's
// header and returns the node's successor, whose value may be shorter. If the node is the newest
// one of a chain that the metadata server has named in this operation, passLarge returns tooLarge,
// because that chain certainly belongs to the key. Otherwise it asks the metadata server for the
// chain.
func (c *finder) passLarge(key uint64, k known, tooLarge error, deadline clock.Time) (known, error) {
	if c.session.rt.Now() >= deadline {
		return k, kv.ErrTimeout
	}
	header, _, err := c.readHeader(k.epoch, k.at, -1, deadline)
	if err != nil {
		return k, err
	}
	next, more := header.Next()
	switch {
	case header.Valid() && header.EntryVersion() == k.at.Version && more:
		k.at = next
		return k, nil
	case header.Valid() && header.EntryVersion() == k.at.Version && k.fresh:
		return k, tooLarge
	}
	c.cache.drop(key)
	return c.query(key, deadline)
}

// isStale reports whether err shows that a location is out of date: the memory of its node has been
// reused, and no longer has the node that the location named.
func isStale(err error) bool {
	return errors.Is(err, layout.ErrTorn) || errors.Is(err, layout.ErrNode) || errors.Is(err, layout.ErrOtherKey)
}

// readNode reads the whole node k.at. If slot is not negative, it also reads the shortcut of that
// slot. value is a part of c.slab, which the next call of readNode or writeNode overwrites.
func (c *finder) readNode(key uint64, k known, slot int, deadline clock.Time) (
	header layout.Word, value []byte, shortcut layout.Word, err error,
) {
	n, shortcut, err := c.fetch(k.epoch, k.at, c.session.at.in, 0, slot, deadline)
	if err == nil {
		err = c.session.fab.MR().ReadAt(c.session.slab[:n], c.session.at.in)
	}
	if err != nil {
		return 0, nil, 0, err
	}
	header, value, err = c.session.format.ParseNode(c.session.slab[:n], key)
	return header, value, shortcut, err
}

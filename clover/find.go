package clover

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// locate is where to begin with a key: what the client remembers, or what the metadata server knows.
func (c *Client) locate(key uint64, deadline clock.Time) (known, error) {
	if k, ok := c.cache.get(key); ok {
		return k, nil
	}
	return c.query(key, deadline)
}

// query asks the metadata server where a key is. Only a chain that it names now tells by its tombstone that the key is not there:
// behind a location that the client remembers may be the chain of an earlier life of the key.
func (c *Client) query(key uint64, deadline clock.Time) (known, error) {
	a, err := c.ask(&rpc.Request{Op: rpc.OpQuery, Key: key}, deadline)
	if err != nil {
		return known{}, err
	}
	if a.Status == rpc.Unknown { // said hello again: once more
		return c.query(key, deadline)
	}
	return c.located(key, a)
}

// located is what an answer says of where a key is.
func (c *Client) located(key uint64, a *rpc.Answer) (known, error) {
	switch a.Status {
	case rpc.OK:
		if a.N != 1 {
			return known{}, rpc.ErrMessage
		}
		k := known{at: a.Locations[0], slot: a.Slot, fresh: true, epoch: c.lease.epoch}
		c.remember(key, k)
		return k, nil
	case rpc.NotFound:
		return known{}, kv.ErrNotFound
	case rpc.Lost:
		return known{}, kv.ErrLost
	default:
	}
	return known{}, fmt.Errorf("query of key %d: %v", key, a.Status)
}

// place is where a node is, and the server is reached.
func (c *Client) place(at layout.Location, deadline clock.Time) (layout.Place, *server, error) {
	p, ok := c.space.Place(at.Handle)
	if !ok {
		return p, nil, fmt.Errorf("location %v is not in the store: %w", at, layout.ErrNode)
	}
	err := c.renewInTime(deadline)
	if err == nil {
		err = c.reach(p.Server, deadline)
	}
	return p, &c.servers[p.Server], err
}

// errMemory says that a memory server does not have the memory that the client knew. What became of the keys there is for the
// metadata server to say.
var errMemory = errors.New("memory server has lost the store's memory")

// again decides about an error: nil if the operation can go on, with new connections and what the metadata server says now.
func (c *Client) again(err error, deadline clock.Time) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kv.ErrLost), errors.Is(err, kv.ErrClosed), errors.Is(err, verbs.ErrClosed):
		return err
	case c.rt.Now() >= deadline:
		return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
	case errors.Is(err, errMemory), errors.Is(err, errLease):
		if err := c.hello(deadline); err != nil {
			return err
		}
	}
	c.rt.Sleep(busyPause)
	if c.rt.Now() >= deadline {
		return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
	}
	return nil
}

// readHeader reads the header of a node, and if shortcut is not negative that slot's shortcut with it.
func (c *Client) readHeader(at layout.Location, slot int, deadline clock.Time) (header, shortcut layout.Word, err error) {
	p, s, err := c.place(at, deadline)
	if err != nil {
		return 0, 0, err
	}
	ops := c.ops[:1]
	c.fab.Read(&ops[0], s.target(p.Offset), c.at.words, layout.HeaderLen)
	if c.readShortcut(&c.ops[1], slot, deadline) {
		ops = c.ops[:2]
	}
	if err := c.doAll(deadline, ops); err != nil {
		return 0, 0, err
	}
	if header, err = c.word(0); err == nil && len(ops) == 2 {
		shortcut, err = c.word(1)
	}
	return header, shortcut, err
}

// readShortcut prepares the READ of a shortcut into word 1. A shortcut that cannot be reached is done without.
func (c *Client) readShortcut(o *fabric.Op, slot int, deadline clock.Time) bool {
	if slot < 0 {
		return false
	}
	p, ok := c.space.Shortcut(slot)
	if !ok || c.reach(p.Server, deadline) != nil {
		return false
	}
	s := &c.servers[p.Server]
	c.fab.Read(o, s.target(p.Offset), c.at.words+8, layout.ShortcutLen)
	return true
}

func (c *Client) doAll(deadline clock.Time, ops []fabric.Op) error {
	if len(ops) == 1 {
		return c.do(deadline, &ops[0])
	}
	return c.do(deadline, &ops[0], &ops[1])
}

// newest follows the chain of key from at to its end, by headers alone (the chase of a writer that lost a race). It starts with
// a look at the shortcut.
func (c *Client) newest(key uint64, k known, deadline clock.Time) (known, layout.Word, error) {
	slot := int(k.slot)
	for {
		if k.epoch != c.lease.epoch {
			var err error
			if k, err = c.query(key, deadline); err != nil {
				return k, 0, err
			}
		}
		header, shortcut, err := c.readHeader(k.at, slot, deadline)
		if err != nil {
			return k, 0, err
		}
		at, more := header.Next()
		switch {
		case !header.Valid() || header.EntryVersion() != k.at.Version:
			c.cache.drop(key)
			if k, err = c.query(key, deadline); err != nil {
				return k, 0, err
			}
			slot = -1
		case header.IsTombstone() && !k.fresh:
			c.cache.drop(key)
			if k, err = c.query(key, deadline); err != nil {
				return k, 0, err
			}
			slot = -1
		case !more:
			return k, header, nil
		default:
			k.at = at
			if l, ok := layout.LocationOf(shortcut); ok && slot >= 0 && l != k.at {
				if near := c.nearer(key, l, k.at, deadline); near != k.at {
					k.at, k.fresh = near, false // perhaps of an earlier life of the key
				}
			}
			slot = -1
		}
	}
}

// nearer chooses between a shortcut and the successor that a header named: the shortcut, if its node still lives and belongs to the
// key. Without keys in nodes that cannot be seen, and the shortcut is believed as the published system does.
func (c *Client) nearer(key uint64, shortcut, successor layout.Location, deadline clock.Time) layout.Location {
	if !c.format.Keyed {
		return shortcut
	}
	p, s, err := c.place(shortcut, deadline)
	if err != nil {
		return successor
	}
	o := &c.ops[0]
	c.fab.Read(o, s.target(p.Offset), c.at.words, layout.HeaderLen+layout.KeyLen)
	if c.do(deadline, o) != nil {
		return successor
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	if c.fab.MR().ReadAt(b[:], c.at.words) != nil {
		return successor
	}
	own, _ := layout.KeyOf(b[:])
	if h := layout.HeaderOf(b[:]); own != key || !h.Valid() || h.EntryVersion() != shortcut.Version {
		return successor
	}
	return shortcut
}

package clover

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// finder finds the newest node of a key: in the cache or at the metadata server, and then along the
// chain.
type finder struct{ session }

// locate returns the node at which the search for a key begins: from the cache, otherwise from the
// metadata server.
func (c *finder) locate(key uint64, deadline clock.Time) (known, error) {
	if k, ok := c.cached(key); ok {
		return k, nil
	}
	return c.query(key, deadline)
}

// query asks the metadata server where a key is. A tombstone proves that the key does not exist
// only in a chain that the server names now: a remembered location may lead into a chain of the key
// from before it was deleted and inserted again.
func (c *finder) query(key uint64, deadline clock.Time) (known, error) {
	a, err := c.ask(&rpc.Request{Op: rpc.OpQuery, Key: key}, deadline)
	if err != nil {
		return known{}, err
	}
	if a.Status == rpc.Unknown { // ask has called hello
		return c.query(key, deadline)
	}
	return c.located(key, a)
}

// located returns the location of a key from the metadata server's answer to OpQuery.
func (c *finder) located(key uint64, a *rpc.Answer) (known, error) {
	switch a.Status {
	case rpc.OK:
		if a.N != 1 {
			return known{}, rpc.ErrMessage
		}
		k := known{at: a.Locations[0], slot: a.Slot, fresh: true, epoch: c.lease.epoch, incarnation: c.lease.incarnation}
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

// place returns the server and the address of a node, after it has renewed the lease and connected
// to the server.
func (c *finder) place(at layout.Location, deadline clock.Time) (layout.Place, *server, error) {
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

// placeIn is place for a node that was found in an epoch. It returns errEpoch if the client is in
// another epoch now: place may have called the metadata server, learnt of a new epoch and confirmed
// it. From then on the entry may hold another node of the same version. So the caller posts its
// request before it calls the metadata server again.
func (c *finder) placeIn(epoch uint32, at layout.Location, deadline clock.Time) (layout.Place, *server, error) {
	p, s, err := c.place(at, deadline)
	if err == nil && epoch != c.lease.epoch {
		err = errEpoch
	}
	return p, s, err
}

// errEpoch: an epoch has begun since the client found the node that it was about to name. Nothing
// was posted.
var errEpoch = errors.New("the location is of an earlier epoch")

// errMemory: a memory server does not have the memory that the client knew. The metadata server
// decides which keys are lost.
var errMemory = errors.New("memory server has lost the store's memory")

// prepareRetry decides whether an operation is repeated after an attempt has failed with err. It
// returns nil if it is, with new connections and new answers of the metadata server; otherwise it
// returns the error with which the operation ends.
func (c *session) prepareRetry(err error, deadline clock.Time) error {
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
	if errors.Is(err, errMemory) {
		c.rt.Sleep(memoryPause)
	}
	c.rt.Sleep(busyPause)
	if c.rt.Now() >= deadline {
		return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
	}
	return nil
}

// readHeader reads the header of a node that was found in epoch. If slot is not negative, it also
// reads the shortcut of that slot.
func (c *finder) readHeader(epoch uint32, at layout.Location, slot int, deadline clock.Time) (header, shortcut layout.Word, err error) {
	p, s, err := c.placeIn(epoch, at, deadline)
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

// readShortcut prepares the READ of a shortcut into word 1. It reports false if the shortcut's
// server cannot be reached.
func (c *finder) readShortcut(o *remotemem.Op, slot int, deadline clock.Time) bool {
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

func (c *session) doAll(deadline clock.Time, ops []remotemem.Op) error {
	if len(ops) == 1 {
		return c.do(deadline, &ops[0])
	}
	return c.do(deadline, &ops[0], &ops[1])
}

// newest follows the chain of key from k.at to its end, reading only headers. A writer that has
// lost a race does this. It reads the shortcut first.
func (c *finder) newest(key uint64, k known, deadline clock.Time) (known, layout.Word, error) {
	slot := int(k.slot)
	for {
		if k.epoch != c.lease.epoch {
			var err error
			if k, err = c.query(key, deadline); err != nil {
				return k, 0, err
			}
		}
		header, shortcut, err := c.readHeader(k.epoch, k.at, slot, deadline)
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
			if l, ok := k.near(shortcut); ok && slot >= 0 && l != k.at {
				if near := c.nearer(key, l, k, deadline); near != k.at {
					k.at, k.fresh = near, false // the shortcut may lead into an old chain of the key, which ends in a tombstone
				}
			}
			slot = -1
		}
	}
}

// near returns the location in a shortcut, if the shortcut is of the epoch of k. A shortcut of
// another epoch may name a node that is reused in the same version, and is not in the chain.
func (k *known) near(shortcut layout.Word) (layout.Location, bool) {
	l, stamp, ok := layout.StampedLocation(shortcut)
	return l, ok && stamp == k.epoch&layout.MaxStamp
}

// nearer chooses where to go on: at the node of a shortcut, or at the successor that a header has
// named, k.at. It chooses the shortcut if its node is in use and belongs to the key. Nodes without
// keys cannot show that; then it chooses the shortcut, as the published system does.
func (c *finder) nearer(key uint64, shortcut layout.Location, k known, deadline clock.Time) layout.Location {
	if !c.format.Keyed {
		return shortcut
	}
	p, s, err := c.placeIn(k.epoch, shortcut, deadline)
	if err != nil {
		return k.at
	}
	o := &c.ops[0]
	c.fab.Read(o, s.target(p.Offset), c.at.words, layout.HeaderLen+layout.KeyLen)
	if c.do(deadline, o) != nil {
		return k.at
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	if c.fab.MR().ReadAt(b[:], c.at.words) != nil {
		return k.at
	}
	own, _ := layout.KeyOf(b[:])
	if h := layout.HeaderOf(b[:]); own != key || !h.Valid() || h.EntryVersion() != shortcut.Version {
		return k.at
	}
	return shortcut
}

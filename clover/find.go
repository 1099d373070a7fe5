package clover

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// finder finds the newest node of a key: it begins at a node from the cache or the metadata server,
// and follows the chain from there.
type finder struct {
	session *session
	// cache has the locations that the client remembers. It may be shared with other clients.
	cache *Cache
}

// locate returns the node at which the search for a key begins: the one in the cache, or one that
// the metadata server names if the cache has none.
func (c *finder) locate(key uint64, deadline clock.Time) (known, error) {
	if k, ok := c.cached(key); ok {
		return k, nil
	}
	return c.query(key, deadline)
}

// query asks the metadata server for a node of the key's chain. Only a tombstone in that chain
// proves that the key does not exist: a remembered location may belong to an older chain, from
// before the key was deleted and inserted again.
func (c *finder) query(key uint64, deadline clock.Time) (known, error) {
	a, err := c.session.ask(&rpc.Request{Op: rpc.OpQuery, Key: key}, deadline)
	if err != nil {
		return known{}, err
	}
	if a.Status == rpc.Unknown { // ask has introduced the client again, by hello
		return c.query(key, deadline)
	}
	return c.located(key, a)
}

// located returns the node that the metadata server's answer a to OpQuery names.
func (c *finder) located(key uint64, a *rpc.Answer) (known, error) {
	switch a.Status {
	case rpc.OK:
		if a.N != 1 {
			return known{}, rpc.ErrMessage
		}
		k := known{at: a.Locations[0], slot: a.Slot, fresh: true, epoch: c.session.lease.epoch, incarnation: c.session.lease.incarnation}
		c.remember(key, k)
		return k, nil
	case rpc.NotFound:
		return known{}, kv.ErrNotFound
	case rpc.Lost:
		return known{}, kv.ErrLost
	default:
	}
	return known{}, fmt.Errorf("metadata server: query of key %d: %v", key, a.Status)
}

// place renews the lease, connects to the memory server of the node `at`, and returns the node's
// address and the server.
func (c *finder) place(at layout.Location, deadline clock.Time) (layout.Place, *server, error) {
	p, ok := c.session.space.Place(at.Handle)
	if !ok {
		return p, nil, fmt.Errorf("location %v is not in the store: %w", at, layout.ErrNode)
	}
	err := c.session.renewInTime(deadline)
	if err == nil {
		p, err = c.session.first(p)
	}
	if err == nil {
		err = c.session.reach(p.Server, deadline)
	}
	return p, &c.session.servers[p.Server], err
}

// placeIn does the work of place for a node that was found in the given epoch. It returns errEpoch
// if the client is in another epoch now: place may have called the metadata server, and the client
// may have learnt of a new epoch and confirmed it. From then on the place may contain another node
// of the same version. For the same reason the caller must post its request before it calls the
// metadata server again.
func (c *finder) placeIn(epoch uint32, at layout.Location, deadline clock.Time) (layout.Place, *server, error) {
	p, s, err := c.place(at, deadline)
	if err == nil && epoch != c.session.lease.epoch {
		err = errEpoch
	}
	return p, s, err
}

// errEpoch means that the client has learnt of a new epoch since it found the node. The client has
// posted nothing.
var errEpoch = errors.New("the location is of an earlier epoch")

// errMemory means that a memory server no longer has the memory that the client knew. The metadata
// server decides which keys are lost.
var errMemory = errors.New("memory server has lost the store's memory")

// prepareRetry is called after an attempt has failed with err. If the operation should be repeated,
// it pauses and returns nil; if the lease has ended or memory was lost, it calls hello before the
// pause. Otherwise it returns the error with which the operation ends.
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
		c.pause(memoryPause, deadline)
	} else if err := c.askView(deadline); err != nil {
		return err
	}
	c.pause(busyPause, deadline)
	if c.rt.Now() >= deadline {
		return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
	}
	return nil
}

// readHeader reads the header of a node that was found in the given epoch. If slot is not negative,
// it also reads the shortcut of that slot.
func (c *finder) readHeader(epoch uint32, at layout.Location, slot int, deadline clock.Time) (header, shortcut layout.Word, err error) {
	if _, shortcut, err = c.fetch(epoch, at, c.session.at.words, layout.HeaderLen, slot, deadline); err == nil {
		header, err = c.session.word(0)
	}
	return header, shortcut, err
}

// fetch reads the first n bytes of a node, or the whole node if n is 0, into the buffer at offset
// `to`. The node was found in the given epoch. fetch returns how many bytes it has read. If slot is
// not negative, it also reads the shortcut of that slot.
func (c *finder) fetch(epoch uint32, at layout.Location, to, n, slot int, deadline clock.Time) (_ int, shortcut layout.Word, err error) {
	p, s, err := c.placeIn(epoch, at, deadline)
	if err != nil {
		return 0, 0, err
	}
	if n = cmp.Or(n, p.Len); n > len(c.session.slab) {
		return 0, 0, errTooLong(n, len(c.session.slab))
	}
	ops, short := [2]*remotemem.Op{&c.session.ops[0], &c.session.ops[1]}, 0
	c.session.fab.Read(ops[0], s.target(p.Offset), to, n)
	if c.readShortcut(ops[1], slot, deadline) {
		short = 1
	}
	if err = c.session.do(deadline, ops[:1+short]...); err == nil && short > 0 {
		shortcut, err = c.session.word(1)
	}
	return n, shortcut, err
}

// readShortcut prepares the READ of the shortcut of a slot into word 1 of the buffer. It returns
// false if slot is negative or the shortcut's server cannot be reached.
func (c *finder) readShortcut(o *remotemem.Op, slot int, deadline clock.Time) bool {
	if slot < 0 {
		return false
	}
	p, ok := c.session.space.Shortcut(slot)
	if !ok || c.session.reach(p.Server, deadline) != nil {
		return false
	}
	s := &c.session.servers[p.Server]
	c.session.fab.Read(o, s.target(p.Offset), c.session.at.words+8, layout.ShortcutLen)
	return true
}

// newest follows the chain of key from k.at to its end, and returns the newest node and its header.
// It reads only headers, the key's shortcut together with every shortcutHops-th header, and the key
// in the shortcut's node. A writer calls it to find out whether its own append has succeeded.
func (c *finder) newest(key uint64, k known, deadline clock.Time) (known, layout.Word, error) {
	return c.newer(key, k, math.MaxInt, deadline)
}

// shortcutHops is how many nodes newer follows before it reads the shortcut again. mostHops is how
// many nodes a writer follows before it tries to append to the node where it is: behind a switch that
// steers, a chain may grow faster than anybody can follow it, and the switch knows its end.
const (
	shortcutHops = 8
	mostHops     = 16
)

// hops is how many nodes a writer follows at most before it tries to append.
func (c *finder) hops() int {
	if c.session.cfg.PublishedShortcuts {
		return math.MaxInt
	}
	return mostHops
}

// newer does what newest does, but follows the chain for at most `most` nodes. The header then names
// a successor.
func (c *finder) newer(key uint64, k known, most int, deadline clock.Time) (_ known, _ layout.Word, err error) {
	var path walk
	defer func() { err = path.explain(err) }()
	slot, asked := int(k.slot), false // of the shortcut to read, -1 for none; the server was asked in this search
	var header, shortcut layout.Word  // header is that of node k.at if seen is true
	for hops, seen := 1, false; ; hops++ {
		if k.epoch != c.session.lease.epoch {
			var err error
			if k, err = c.query(key, deadline); err != nil {
				return k, 0, err
			}
			path.asked()
			seen = false
		}
		path.step(k.at)
		if !seen {
			var err error
			if header, shortcut, err = c.readHeader(k.epoch, k.at, slot, deadline); err != nil {
				return k, 0, err
			}
		}
		seen = false
		at, more := header.Next()
		switch {
		case !header.Valid() || header.EntryVersion() != k.at.Version:
			fallthrough
		case header.IsTombstone() && !k.fresh:
			// From here on the search reads no shortcut: a stale one would lead to the same node again.
			passed, err := k.passed, error(nil)
			c.cache.drop(key)
			if k, err = c.query(key, deadline); err != nil {
				return k, 0, err
			}
			path.asked()
			k.passed, slot, asked = passed, -1, true
		case !more, hops >= most:
			return k, header, nil
		default:
			k.at = at
			if l, ok := k.ahead(shortcut); ok {
				k.passed = l
				if h, near := c.nearer(key, l, k, deadline); near {
					// The shortcut may lead into an old chain of the key. So a tombstone at its
					// end does not show that the key is deleted now (fresh is false).
					k.at, k.fresh = l, false
					header, seen = h, c.session.format.Keyed
				}
			}
			slot, shortcut = -1, 0
			if hops%shortcutHops == 0 && !asked && !c.session.cfg.PublishedShortcuts {
				slot = int(k.slot)
			}
		}
	}
}

// near returns the location in a shortcut if the shortcut is from the epoch of k. A shortcut from
// another epoch may name a node that was reused since, with the same version but outside the key's
// chain, because versions begin again after an epoch.
func (k *known) near(shortcut layout.Word) (layout.Location, bool) {
	l, stamp, ok := layout.StampedLocation(shortcut)
	return l, ok && stamp == k.epoch&layout.MaxStamp
}

// ahead returns the location in a shortcut if a writer that is on its way to k.at should look at it: it
// names neither that node nor the one that the writer has followed last. shortcut is 0 if none was
// read.
func (k *known) ahead(shortcut layout.Word) (layout.Location, bool) {
	l, ok := k.near(shortcut)
	return l, ok && l != k.at && l != k.passed
}

// nearer decides whether a writer goes on at the node that a shortcut names (true), or at k.at, the
// successor that a header has named (false). It returns true and the header of the shortcut's node
// if that node is in use and belongs to the key. In a store whose nodes have no keys, nearer cannot
// check that. Then it returns true without a header: such a writer follows every shortcut, as in
// the published system.
func (c *finder) nearer(key uint64, shortcut layout.Location, k known, deadline clock.Time) (layout.Word, bool) {
	if !c.session.format.Keyed {
		return 0, true
	}
	var b [layout.HeaderLen + layout.KeyLen]byte
	_, _, err := c.fetch(k.epoch, shortcut, c.session.at.words, len(b), -1, deadline)
	if err != nil || c.session.fab.MR().ReadAt(b[:], c.session.at.words) != nil {
		return 0, false
	}
	own, _ := layout.KeyOf(b[:])
	h := layout.HeaderOf(b[:])
	return h, own == key && h.Valid() && h.EntryVersion() == shortcut.Version
}

package clover

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// appender writes nodes and links them to their chains, and reports to the metadata server which
// nodes it has linked.
type appender struct {
	finder
	// placed is the node of the last write that has succeeded.
	placed layout.Location
}

func errTooLong(n, limit int) error {
	return fmt.Errorf("%w: a node of %d bytes, this client's buffer has %d: open it with a larger MaxValue", kv.ErrTooLarge, n, limit)
}

// Put replaces the value of key: two round trips if the client knows the newest node and no other
// client appends at the same time.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	if err := c.begin(deadline); err != nil {
		return err
	}
	return c.write(key, value, false, deadline)
}

// Delete ends the chain of key by a tombstone.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	if err := c.begin(deadline); err != nil {
		return err
	}
	return c.write(key, nil, true, deadline)
}

// write appends a node. If the lease ends before the node is linked, write starts again with
// another node.
func (c *appender) write(key uint64, value []byte, tombstone bool, deadline clock.Time) error {
	for {
		err := c.append(key, value, tombstone, deadline)
		if !errors.Is(err, errLease) {
			return err
		}
		if c.rt.Now() >= deadline {
			return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
		}
		if err := c.hello(deadline); err != nil {
			return err
		}
	}
}

func (c *appender) append(key uint64, value []byte, tombstone bool, deadline clock.Time) error {
	if err := c.retried(deadline, func() error { _, err := c.locate(key, deadline); return err }); err != nil {
		return err
	}
	n, err := c.fresh(key, value, tombstone, deadline)
	if err != nil {
		return err
	}
	epoch, incarnation := c.lease.epoch, c.lease.incarnation // read before the node is linked
	linked, err := c.link(key, n, deadline)
	if err == nil {
		c.placed = n.at
		c.lease.taken = max(0, c.lease.taken-1)
		c.appended(rpc.Record{Key: key, Old: linked.old, New: n.at, Deleted: tombstone}, shortcut{linked.slot, epoch})
		if c.remember(key, known{at: n.at, slot: linked.slot, epoch: epoch, incarnation: incarnation}); tombstone {
			c.cache.drop(key)
		}
		return nil
	}
	if linked.unused {
		c.keep(n)
	}
	return err
}

// keep makes a node that was not linked available for another write, unless the lease under which
// the client got it has ended.
func (c *appender) keep(n node) {
	if n.client == c.lease.client {
		c.spare[n.class] = append(c.spare[n.class], n.at)
		c.lease.taken--
	}
}

// retried repeats f until it succeeds, or fails with an error that a new connection cannot repair.
func (c *appender) retried(deadline clock.Time, f func() error) error {
	for {
		err := f()
		switch {
		case err == nil, errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrTooLarge), errors.Is(err, kv.ErrFull):
			return err
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// node is a node that the client has written and not linked yet.
type node struct {
	at    layout.Location
	class layout.Class
	// client is the client number for which the metadata server gave out the node.
	client uint32
}

// fresh takes an unused node and writes it.
func (c *appender) fresh(key uint64, value []byte, tombstone bool, deadline clock.Time) (n node, err error) {
	class, ok := layout.ClassOf(len(value) + c.format.Overhead())
	if !ok {
		return n, fmt.Errorf("%w: %d bytes, a node holds at most %d", kv.ErrTooLarge, len(value), c.format.Capacity(layout.MaxSlab))
	}
	for ; class < layout.Classes && c.space.Entries[class] == 0; class++ {
	}
	if class == layout.Classes {
		return n, fmt.Errorf("%w: the store has no class for %d bytes", kv.ErrTooLarge, len(value))
	}
	if class.Size() > len(c.slab) {
		return n, errTooLong(class.Size(), len(c.slab))
	}
	err = c.retried(deadline, func() error {
		if n.at, err = c.take(class, key, tombstone, deadline); err != nil {
			return err
		}
		n.class, n.client = class, c.lease.client
		if err := c.owns(n, deadline); err != nil {
			return err
		}
		return c.writeNode(key, n.at, value, tombstone, deadline)
	})
	return n, err
}

// home returns the server of the key's newest known node, counted from 1, and the version of this
// node. server 0: any server will do.
func (c *appender) home(key uint64) (server int, v layout.Version) {
	k, ok := c.cached(key)
	if !ok || c.space.Servers == 1 || c.cfg.Spread {
		return 0, k.at.Version
	}
	at, _ := c.space.Place(k.at.Handle)
	return at.Server + 1, k.at.Version
}

// batch is how many entries the client asks for at a time. The client may hold a batch of each
// server at the same time. So with several servers it asks for fewer: an entry that the client
// holds for long has a low version when the client uses it.
func (c *appender) batch() int {
	if c.cfg.Spread {
		return c.cfg.Batch
	}
	return min(c.cfg.Batch, max(minBatch, c.cfg.Batch/c.space.Servers))
}

// minBatch bounds the calls of the metadata server for entries.
const minBatch = 8

// choose returns the index of an unused entry for a key whose home is server near. If the client
// has none of that server, the result is -1, and the client asks the metadata server for some. But
// if it has more than a batch of entries of other servers, it got these because that server had
// none, and choose returns one of them.
//
// It prefers an entry whose version is at least that of the key's newest node, because a switch
// steers no request to a node of a lower version.
func (c *appender) choose(near int, v layout.Version, spare []layout.Location) int {
	home := func(l layout.Location) bool {
		p, _ := c.space.Place(l.Handle)
		return near == 0 || p.Server == near-1
	}
	i := slices.IndexFunc(spare, func(l layout.Location) bool { return l.Version >= v && home(l) })
	if i < 0 {
		i = slices.IndexFunc(spare, home)
	}
	if i < 0 && len(spare) > c.batch()*(c.space.Servers-1) {
		return 0
	}
	return i
}

// take takes an unused entry; when there is none at the home of the key, it asks the metadata server
// for more.
func (c *appender) take(class layout.Class, key uint64, tombstone bool, deadline clock.Time) (layout.Location, error) {
	near, v := c.home(key)
	r := rpc.Request{Op: rpc.OpAlloc, Class: class, N: c.batch(), Tombstone: tombstone, Near: near}
	if tombstone {
		r.N = 1
	}
	asked := false
	for {
		spare := c.spare[class]
		i := c.choose(near, v, spare)
		if asked && i < 0 {
			i = min(0, len(spare)-1)
		}
		if i >= 0 {
			l := spare[i]
			c.spare[class] = spare[:i+copy(spare[i:], spare[i+1:])]
			c.lease.taken++
			return l, nil
		}
		a, err := c.ask(&r, deadline)
		if err != nil {
			return layout.Location{}, err
		}
		asked = true
		switch a.Status {
		case rpc.OK:
			c.spare[class] = append(c.spare[class], a.Locations[:a.N]...)
		case rpc.Full:
			if len(c.spare[class]) > 0 {
				continue
			}
			// Nodes may be missing because this client has superseded them and not reported it.
			if len(c.gc.records) == 0 && !c.gc.busy && c.giveBack(deadline) == 0 || c.rt.Now() >= deadline {
				return layout.Location{}, fmt.Errorf("%w: no free node of %v for clients; `rdmalab clover stat` shows how the nodes are used", kv.ErrFull, class)
			}
			c.report(true)
			c.rt.Sleep(busyPause)
			if err := c.fab.Poll(); err != nil {
				return layout.Location{}, err
			}
			c.hear()
		case rpc.Unknown:
		default:
			return layout.Location{}, fmt.Errorf("no entry of %v: %v", class, a.Status)
		}
	}
}

// writeNode writes the node: the first round trip of a PUT. An entry whose WRITE failed is not
// reused, because the WRITE may still be in flight.
func (c *appender) writeNode(key uint64, at layout.Location, value []byte, tombstone bool, deadline clock.Time) error {
	p, s, err := c.place(at, deadline)
	if err != nil {
		return err
	}
	header := layout.Header(at.Version)
	if tombstone {
		header = layout.Tombstone(at.Version)
	}
	if !c.format.PutNode(c.slab[:p.Len], header, key, value) {
		return fmt.Errorf("%w: %d bytes into %d", kv.ErrTooLarge, len(value), p.Len)
	}
	if err := c.fab.MR().WriteAt(c.slab[:p.Len], c.at.out); err != nil {
		return err
	}
	o := &c.ops[0]
	c.fab.Write(o, s.target(p.Offset), c.at.out, p.Len)
	return c.do(deadline, o)
}

// Insert gives a new key a value: one round trip to memory, and one call of the metadata server.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	if err := c.begin(deadline); err != nil {
		return err
	}
	n, err := c.fresh(key, value, false, deadline)
	if err != nil {
		return err
	}
	a, err := c.ask(&rpc.Request{Op: rpc.OpOpen, Key: key, At: n.at}, deadline)
	if err != nil {
		return err
	}
	c.placed = n.at
	if a.Status == rpc.OK || a.Status == rpc.Done {
		c.lease.taken = max(0, c.lease.taken-1)
	}
	switch a.Status {
	case rpc.OK:
		c.remember(key, known{at: n.at, slot: a.Slot, epoch: c.lease.epoch, incarnation: c.lease.incarnation})
		return nil
	case rpc.Done:
		return nil
	case rpc.Exists:
		c.keep(n)
		return kv.ErrExists
	case rpc.Full:
		c.keep(n)
		return fmt.Errorf("%w: no slot for another key", kv.ErrFull)
	case rpc.Lost:
		return kv.ErrLost
	case rpc.Unknown:
		return fmt.Errorf("%w: the metadata server was restarted", kv.ErrTimeout)
	default:
	}
	return fmt.Errorf("insert of key %d: %v", key, a.Status)
}

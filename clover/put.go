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

// appender writes nodes, links them to their chains, and reports to the metadata server which nodes
// it has linked.
type appender struct {
	session *session
	finder  *finder
	// front is, by class, the highest version that the client has seen lately. It writes its nodes
	// with no lower version (layout.Version.Pace).
	front [layout.Classes]layout.Version
	// placed is the node of the last write, if that write has succeeded.
	placed layout.Location
	// turn is the client's present PUT in Config.Turns.
	turn turn
}

func errTooLong(n, limit int) error {
	return fmt.Errorf("%w: a node of %d bytes, this client's buffer has %d: open it with a larger MaxValue", kv.ErrTooLarge, n, limit)
}

// Put replaces the value of key. It takes two round trips if the client knows the key's newest node
// and has an unused node, and if no other client appends to the key at the same time.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	if err := c.appender.begin(deadline); err != nil {
		return err
	}
	if _, err := c.appender.classOf(len(value)); err != nil || c.appender.takeTurn(key, deadline) {
		return err
	}
	err := c.appender.write(key, value, false, deadline)
	c.appender.endTurn(key, err == nil)
	return err
}

// Delete ends the chain of key with a tombstone.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	if err := c.appender.begin(deadline); err != nil {
		return err
	}
	return c.appender.write(key, nil, true, deadline)
}

// write appends a node. If the lease ends before the node is linked, write calls hello and begins
// again with another node.
func (c *appender) write(key uint64, value []byte, tombstone bool, deadline clock.Time) error {
	for {
		err := c.append(key, value, tombstone, deadline)
		if !errors.Is(err, errLease) {
			return err
		}
		if c.session.rt.Now() >= deadline {
			return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
		}
		if err := c.session.hello(deadline); err != nil {
			return err
		}
	}
}

func (c *appender) append(key uint64, value []byte, tombstone bool, deadline clock.Time) error {
	if err := c.retried(deadline, func() error { _, err := c.finder.locate(key, deadline); return err }); err != nil {
		return err
	}
	n, err := c.fresh(key, value, tombstone, deadline)
	if err != nil {
		return err
	}
	// read before link, which may learn of a later epoch or of later reports
	epoch, incarnation, heard, races := c.session.lease.epoch, c.session.lease.incarnation, c.session.lease.clock, c.session.cost.Retries
	c.coverTurns(key)
	linked, err := c.link(key, n, deadline)
	if err == nil {
		c.placed = n.at
		c.session.lease.taken = max(0, c.session.lease.taken-1)
		c.appended(rpc.Record{Key: key, Heard: heard, New: n.at, Deleted: tombstone}, linked.slot, epoch, c.session.cost.Retries > races)
		if c.finder.remember(key, known{at: n.at, slot: linked.slot, epoch: epoch, incarnation: incarnation}); tombstone {
			c.finder.cache.drop(key)
		}
		return nil
	}
	if linked.unused {
		c.keep(n)
	}
	return err
}

// keep makes a node that was not linked a spare node for another write, unless the lease under
// which the client got the node has ended.
func (c *appender) keep(n node) {
	if n.client == c.session.lease.client {
		c.session.spare[n.class] = append(c.session.spare[n.class], n.at)
		c.session.lease.taken--
	}
}

// retried repeats f until it succeeds, fails with an error that a new connection cannot repair, or
// the deadline passes.
func (c *appender) retried(deadline clock.Time, f func() error) error {
	for {
		err := f()
		switch {
		case err == nil, errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrTooLarge), errors.Is(err, kv.ErrFull):
			return err
		}
		if err := c.session.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// node is a node that the client has written but not linked yet.
type node struct {
	at    layout.Location
	class layout.Class
	// client is the client number for which the metadata server gave out the node.
	client uint32
}

func (c *appender) classOf(n int) (layout.Class, error) {
	largest := c.session.space.Largest()
	class, ok := layout.ClassOf(n + c.session.format.Overhead())
	if !ok || class > largest {
		return 0, fmt.Errorf("%w: %d bytes, a node of this store holds at most %d", kv.ErrTooLarge, n, c.session.format.Capacity(largest.Size()))
	}
	for c.session.space.Entries[class] == 0 {
		class++
	}
	if class.Size() > len(c.session.slab) {
		return 0, errTooLong(class.Size(), len(c.session.slab))
	}
	return class, nil
}

// fresh takes a spare node of the class for the value and writes the key and the value into it. The
// node is not linked yet.
func (c *appender) fresh(key uint64, value []byte, tombstone bool, deadline clock.Time) (n node, err error) {
	class, err := c.classOf(len(value))
	if err != nil {
		return n, err
	}
	err = c.retried(deadline, func() error {
		if n.at, err = c.take(class, key, tombstone, deadline); err != nil {
			return err
		}
		n.class, n.client = class, c.session.lease.client
		if err := c.session.owns(n, deadline); err != nil {
			return err
		}
		return c.writeNode(key, n.at, value, tombstone, deadline)
	})
	return n, err
}

// home returns the number, counted from 1, of the server that has the key's newest known node, and
// the version of this node. Server 0 means that any server will do.
func (c *appender) home(key uint64) (server int, v layout.Version) {
	k, ok := c.finder.cached(key)
	if !ok || c.session.space.Servers == 1 || c.session.cfg.Spread {
		return 0, k.at.Version
	}
	at, _ := c.session.space.Place(k.at.Handle)
	return at.Server + 1, k.at.Version
}

// batch returns how many nodes the client requests at a time. The client may hold a batch of nodes
// of each server at the same time. The longer it holds a node, the lower is the node's version
// compared with those of other nodes, and a switch steers no request to a node of a lower version
// (see choose). So with several servers the batches are smaller.
func (c *session) batch() int {
	if c.cfg.Spread {
		return c.cfg.Batch
	}
	return min(c.cfg.Batch, max(minBatch, c.cfg.Batch/c.space.Servers))
}

// minBatch is the smallest batch, unless Config.Batch is smaller. With smaller batches the client
// would have to ask the metadata server for nodes more often.
const minBatch = 8

// choose returns the index in `spare` of a node for a key whose home is server `near`. If the
// client has no node of that server, choose returns -1, and the client asks the metadata server for
// some. There is one exception: if the client has more than two batches of nodes for each other server,
// it got these because server `near` had none, and choose returns one of them.
func (c *appender) choose(near int, spare []layout.Location) int {
	i := slices.IndexFunc(spare, func(l layout.Location) bool {
		p, _ := c.session.space.Place(l.Handle)
		return near == 0 || p.Server == near-1
	})
	if i < 0 && len(spare) > 2*c.session.batch()*(c.session.space.Servers-1) {
		return 0
	}
	return i
}

// take takes a node of a class from the client's spare nodes. If it has none on the server of the
// key's newest node, it first asks the metadata server for some.
func (c *appender) take(class layout.Class, key uint64, tombstone bool, deadline clock.Time) (layout.Location, error) {
	if c.session.space.Shared && class > c.session.space.Largest() {
		return layout.Location{}, fmt.Errorf("%w: a node of %v, and this small store has none longer than %v", kv.ErrTooLarge, class, c.session.space.Largest())
	}
	near, v := c.home(key)
	r := rpc.Request{Op: rpc.OpAlloc, Class: class, N: c.session.batch(), Tombstone: tombstone, Near: near}
	if tombstone {
		r.N = 1
	}
	for asked, awaited := false, false; ; {
		spare := c.session.spare[class]
		i := c.choose(near, spare)
		if asked && i < 0 {
			i = min(0, len(spare)-1)
		}
		if i >= 0 {
			l := spare[i]
			c.session.spare[class] = spare[:i+copy(spare[i:], spare[i+1:])]
			c.session.lease.taken++
			if v != 0 {
				_, c.front[class] = v.Pace(c.front[class])
			}
			l.Version, c.front[class] = l.Version.Pace(c.front[class])
			return l, nil
		}
		if !awaited && c.session.gc.brings(class) {
			// Only a server with much to do has not answered yet: another request would make it slower.
			awaited = true
			if err := c.session.awaitReport(deadline); err != nil {
				return layout.Location{}, err
			}
			continue
		}
		a, err := c.session.ask(&r, deadline)
		if err != nil {
			return layout.Location{}, err
		}
		asked = true
		switch a.Status {
		case rpc.OK:
			c.session.spare[class] = append(c.session.spare[class], a.Locations[:a.N]...)
		case rpc.Full:
			unused := int(a.Slot)
			if c.session.hear(); len(c.session.spare[class]) > 0 { // the answer to a report has brought some
				continue
			}
			// The store may be full because this client has superseded nodes and not reported it
			// yet.
			if len(c.session.gc.records) == 0 && !c.session.gc.busy && c.session.giveBack(deadline) == 0 || c.session.rt.Now() >= deadline {
				return layout.Location{}, c.full(class, unused)
			}
			c.session.report(true)
			c.session.pause(busyPause, deadline)
			if err := c.session.fab.Poll(); err != nil {
				return layout.Location{}, err
			}
			c.session.hear()
		case rpc.Unknown:
		default:
			return layout.Location{}, fmt.Errorf("no node of %v: %v", class, a.Status)
		}
	}
}

// full returns the error of a request that finds no free node of a class. unused is the number of
// segments of the store's memory that belong to no class. The error says what is full: all memory,
// or the fixed part that this class has.
func (c *appender) full(class layout.Class, unused int) error {
	n := c.session.space.Segments() * c.session.space.Servers
	what := fmt.Sprintf("the fixed part for nodes of %v: %d nodes", class, c.session.space.Entries[class]*c.session.space.Servers)
	switch {
	case n > 0 && unused == 0:
		what = fmt.Sprintf("no free node of %v, and all %d segments are in use", class, n)
	case n > 0:
		what = fmt.Sprintf("no free node of %v, and %d of %d segments cannot be used: a memory server does not answer", class, unused, n)
	}
	return fmt.Errorf("%w: %s; `rdmalab clover stat` shows how the nodes are used", kv.ErrFull, what)
}

// writeNode writes the node `at`, which is the first round trip of a PUT. If the WRITE fails, the
// node is not used again, because the WRITE may still be in flight.
func (c *appender) writeNode(key uint64, at layout.Location, value []byte, tombstone bool, deadline clock.Time) error {
	p, s, err := c.finder.place(at, deadline)
	if err != nil {
		return err
	}
	header := layout.Header(at.Version)
	if tombstone {
		header = layout.Tombstone(at.Version)
	}
	if !c.session.format.PutNode(c.session.slab[:p.Len], header, key, value) {
		return fmt.Errorf("%w: %d bytes into %d", kv.ErrTooLarge, len(value), p.Len)
	}
	if err := c.session.fab.MR().WriteAt(c.session.slab[:p.Len], c.session.at.out); err != nil {
		return err
	}
	if c.session.copied() {
		p, _ = c.session.space.Place(at.Handle)
		return c.writeCopies(p, deadline)
	}
	o := &c.session.ops[0]
	c.session.fab.Write(o, s.target(p.Offset), c.session.at.out, p.Len)
	return c.session.do(deadline, o)
}

// Insert adds a new key with a value. If the client has an unused node, that takes one round trip
// to memory and one call of the metadata server.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	if err := c.appender.begin(deadline); err != nil {
		return err
	}
	n, err := c.appender.fresh(key, value, false, deadline)
	if err != nil {
		return err
	}
	a, err := c.session.ask(&rpc.Request{Op: rpc.OpOpen, Key: key, At: n.at}, deadline)
	if err != nil {
		return err
	}
	c.appender.placed = n.at
	if a.Status == rpc.OK || a.Status == rpc.Done {
		c.session.lease.taken = max(0, c.session.lease.taken-1)
	}
	switch a.Status {
	case rpc.OK:
		c.finder.remember(key, known{at: n.at, slot: a.Slot, epoch: c.session.lease.epoch, incarnation: c.session.lease.incarnation})
		return nil
	case rpc.Done:
		return nil
	case rpc.Exists:
		c.appender.keep(n)
		return kv.ErrExists
	case rpc.Full:
		c.appender.keep(n)
		return fmt.Errorf("%w: no slot for another key", kv.ErrFull)
	case rpc.Lost:
		return kv.ErrLost
	case rpc.Unknown:
		return fmt.Errorf("%w: the metadata server was restarted", kv.ErrTimeout)
	default:
	}
	return fmt.Errorf("insert of key %d: %v", key, a.Status)
}

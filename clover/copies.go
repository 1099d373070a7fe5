package clover

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A store may keep several copies of each node, on different memory servers. A writer writes all of
// them at the same time. Then it appends the node on each copy of the newest node, from the last
// copy to the first. The last copy decides which of several writers has appended. Readers read the
// first copy. So if a copy of a node names a successor, all later copies name the same one. What a
// reader has seen is therefore on every copy, and survives as long as one copy does.
//
// A writer that loses on the last copy appends the winner's node on the other copies before it goes
// on. So it waits for no other client. The published system takes the first copy's header as a lock
// instead. A client that dies never releases this lock.
//
// The metadata server decides which servers' copies count. When this changes, it ends the
// connections of all clients, and they say hello again. So the clients that have requests in flight
// always write the same set of copies.

// copied reports whether the store has several copies of each node.
func (c *session) copied() bool { return c.space.Backups > 0 }

const maxCopies = layout.MaxBackups + 1

// copies returns those copies of a node that count, in the order of their numbers, and how many
// there are (n). A copy counts if the metadata server has given its server a generation other than
// 0.
func (c *session) copies(p layout.Place) (list [maxCopies]layout.Place, n int) {
	for j := range c.space.Backups + 1 {
		if q := c.space.Copy(p, j); c.servers[q.Server].generation != 0 {
			list[n] = q
			n++
		}
	}
	return list, n
}

// first returns the copy of a node that readers read: the first one on a server whose copies count.
func (c *session) first(p layout.Place) (layout.Place, error) {
	if !c.copied() {
		return p, nil
	}
	list, n := c.copies(p)
	if n == 0 {
		return p, errMemory
	}
	return list[0], nil
}

// reachPatience is the longest time of one attempt to connect to a memory server of a store with
// copies. It is short, because the metadata server may be about to decide that the copies of this
// server no longer count.
const reachPatience = 100 * time.Millisecond

func (c *session) reachAll(list []layout.Place, deadline clock.Time) error {
	for _, p := range list {
		if err := c.reach(p.Server, deadline); err != nil {
			return err
		}
	}
	return nil
}

// writeCopies writes the node that is in the client's buffer to the places of all its copies that
// count (copies). p is the place of copy 0.
func (c *appender) writeCopies(p layout.Place, deadline clock.Time) error {
	list, n := c.session.copies(p)
	if n == 0 {
		return errMemory
	}
	if err := c.session.reachAll(list[:n], deadline); err != nil {
		return err
	}
	var ops [maxCopies]*remotemem.Op
	for i := range n {
		ops[i] = &c.session.ops[i]
		c.session.fab.Write(ops[i], c.session.servers[list[i].Server].target(list[i].Offset), c.session.at.out, p.Len)
	}
	return c.session.do(deadline, ops[:n]...)
}

// errOpen means that an append was made on some copies of a node, but perhaps not on all.
var errOpen = errors.New("the append was not made on all copies")

// swapCopies appends node n behind the node that `at` names, on all copies of that node. It returns
// the header that it has found on the last copy. This copy decides: if another node was appended
// there, swapCopies appends that other node on the remaining copies. If an error occurs after the
// first compare-and-swap was posted, the outcome is unknown.
func (c *appender) swapCopies(at attempt, n node, deadline clock.Time) (was layout.Word, err error) {
	p, ok := c.session.space.Place(at.Handle)
	if !ok {
		return 0, layout.ErrNode
	}
	list, k := c.session.copies(p)
	if k == 0 {
		return 0, errMemory
	}
	if err := c.session.reachAll(list[:k], deadline); err != nil {
		return 0, err
	}
	if at.epoch != c.session.lease.epoch {
		return 0, errEpoch // while it connected, the client has learnt of a new epoch
	}
	free, link := layout.Header(at.Version), layout.Superseded(at.Version, n.at)
	for i := k - 1; i >= 0; i-- {
		o := &c.session.ops[0]
		c.session.fab.CompareSwap(o, c.session.servers[list[i].Server].target(list[i].Offset), uint64(free), uint64(link), c.session.at.words)
		if err := c.session.do(deadline, o); err != nil {
			if i < k-1 {
				err = fmt.Errorf("%w: %v", errOpen, err) //nolint:errorlint // a wrapped errLease would mean that nothing was posted
			}
			return 0, err
		}
		found, err := c.session.word(0)
		if err != nil {
			return 0, err
		}
		if i == k-1 {
			if was = found; found != free {
				if _, more := found.Next(); !more || !found.Valid() || found.EntryVersion() != at.Version {
					return was, nil // the newest node is a tombstone, or the entry has another node by now
				}
				link = found
			}
			continue
		}
		if found != free && found != link && found.EntryVersion() == at.Version {
			return 0, fmt.Errorf("%w: copy %d says %v, the last one %v", errOpen, i, found, link)
		}
	}
	return was, nil
}

// settleCopies does the work of settle for a store with copies. The last copy decides whether an
// append has succeeded, and the first copy may not show this decision yet. So settleCopies makes
// the append again on all copies, unless a new epoch has begun. A second append of the same node
// does no harm.
func (c *appender) settleCopies(key uint64, n node, tried *attempt, uncertain *bool, deadline clock.Time) (bool, error) {
	if tried.epoch == c.session.lease.epoch {
		was, err := c.swap(*tried, n, deadline)
		if err != nil {
			return false, err
		}
		if n.follows(tried.Location, was) {
			return true, nil
		}
	}
	return c.settleByChain(key, n, uncertain, deadline)
}

// askView is called after a failed attempt. In a store with copies, it asks the metadata server
// whether the set of servers whose copies count has changed. If so, the client says hello.
func (c *session) askView(deadline clock.Time) error {
	if !c.copied() {
		return nil
	}
	a, err := c.request(&rpc.Request{Op: rpc.OpBeat}, deadline)
	if err == nil && a.Status == rpc.Unknown {
		return c.hello(deadline)
	}
	if errors.Is(err, verbs.ErrClosed) {
		return err
	}
	return nil
}

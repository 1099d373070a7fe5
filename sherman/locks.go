package sherman

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// locker takes and releases the locks of pages: first the local lock, which the clients of the node
// share, then the lock word in remote memory. It also fences owners whose lease has ended, and
// finds the outcome of WRITEs whose connection has failed.
type locker struct {
	mem *memory
	// locks has the queues for the locks. The clients of a node share them, except with
	// NodeConfig.Unqueued.
	locks *lock.Table
	gate  verbs.Gate // gate opens when this client becomes the first of its node in a lock's queue
	// wrote is true if the operation has posted WRITEs to a page that other clients can reach. The
	// server may or may not have executed them.
	wrote bool
}

const (
	// still is how long the node must see the same tag before its clients poll the lock word less
	// often. From then on the pause between two polls is the time for which the node has seen the
	// tag, divided by stillShare.
	still      = 500 * time.Microsecond
	stillShare = 16
	// passShare limits a series of hand-overs: it lasts at most for the lease divided by passShare.
	passShare = 4
	// firstBackOff is the upper limit of the random pause after the first failed CAS, if
	// NodeConfig.BackOff is not 0.
	firstBackOff = time.Microsecond
	// settleTimeout is how long an operation may go on after its deadline to find out the state of
	// a lock.
	settleTimeout = 20 * time.Millisecond
)

type held struct {
	key    lock.Key
	ticket *lock.Ticket
	tag    layout.Tag
	boot   uint64     // the boot number of the memory server when the tag was written
	since  clock.Time // when a client of the node swapped the tag into the word
}

// leaves returns the state of the lock word that this client passes to the next client of its node.
// doubt is the connection whose requests may still change the word, or 0.
func (h *held) leaves(doubt uint64) lock.Held {
	return lock.Held{Tag: uint64(h.tag), Doubt: doubt, Boot: h.boot, Since: h.since}
}

// mayPass reports whether the client may hand the lock over to the next client of its node. The
// word keeps its tag during a series of hand-overs. So the time of the series is limited: other
// nodes must not take this node for dead.
func (c *locker) mayPass(h *held) bool {
	return h.ticket.MayPass() && c.mem.rt.Now().Sub(h.since) < c.mem.node.cfg.Lease/passShare
}

// valid reports whether a tag of this node is still valid: the node still has the owner number in
// the tag, and the server has not restarted since.
func (c *locker) valid(k lock.Key, tag layout.Tag, boot uint64) bool {
	l := &c.mem.links[k.Server]
	return tag != 0 && l.owner == tag.Owner() && c.mem.node.owner(k.Server) == tag.Owner() && l.mem.Boot == boot
}

// acquire takes the lock of the page at address a. The client first waits for its turn among the
// clients of the node. Then it takes the lock word in the server's memory, unless the previous
// client of the node hands it over.
func (c *locker) acquire(a layout.Addr, deadline clock.Time) (*held, error) {
	if !c.mem.inside(a) {
		return nil, fmt.Errorf("%w: address %v", ErrBroken, a)
	}
	defer c.mem.rt.Leave(c.mem.rt.Enter(kv.PhaseLock))
	began := c.mem.rt.Now()
	h := &held{key: c.mem.lockOf(a)}
	h.ticket = c.locks.Enter(h.key, c.gate.Open)
	left, err := c.queue(h.ticket, deadline)
	if err != nil {
		return nil, err
	}
	tries := c.mem.cost.CAS
	over, err := c.inherit(h, left, deadline)
	if err == nil && !over {
		err = c.take(h, deadline)
	}
	if err != nil {
		c.drop(h, left)
		return nil, err
	}
	wait := c.mem.rt.Now().Sub(began)
	c.mem.cost.Wait += wait
	if over {
		c.mem.cost.HandOvers++
	} else {
		h.since = began.Add(wait)
	}
	c.mem.node.count(func(s *NodeStats) {
		s.Acquires++
		s.CAS += uint64(c.mem.cost.CAS - tries)
		if over {
			s.HandOvers++
		}
		s.waited(wait)
	})
	return h, nil
}

// queue waits until the client is the first of its node in the queue. If the deadline passes first,
// the client leaves the queue.
func (c *locker) queue(t *lock.Ticket, deadline clock.Time) (lock.Held, error) {
	for {
		ahead, left := t.Place()
		if ahead == 0 {
			return left, nil
		}
		// The gate may have been opened by another queue, which the client has left. The loop
		// checks the place in this queue again.
		if err := c.gate.Wait(deadline); err != nil && t.GiveUp() {
			return lock.Held{}, kv.TimedOut(fmt.Errorf("other clients of this node hold the lock: %w", err))
		}
	}
}

// drop leaves the queue of a lock that the client has not taken. If the outcome of a CAS is unknown
// (h.tag is not 0), drop tells the next client that the lock word may have this node's tag.
func (c *locker) drop(h *held, left lock.Held) {
	if h.tag != 0 {
		left = h.leaves(c.mem.links[h.key.Server].mem.Conn)
	}
	h.ticket.Leave(left)
}

// inherit takes over the lock word in the state `left`, in which the previous client of the node
// left it. It returns true if the word still has the node's tag: then this client holds the lock.
func (c *locker) inherit(h *held, left lock.Held, deadline clock.Time) (bool, error) {
	tag := layout.Tag(left.Tag)
	if tag == 0 {
		return false, nil
	}
	over := false
	err := c.mem.retried(h.key.Server, deadline, func() error {
		if !c.valid(h.key, tag, left.Boot) {
			// The owner was fenced, so that other nodes take the word over, or the server has
			// restarted, which cleared the memory of its NIC.
			return nil
		}
		if over = left.Doubt == 0; over {
			return nil
		}
		if err := memservice.End(c.mem.cfg.Context, c.mem.cfg.Manager, c.mem.node.cfg.Servers[h.key.Server], left.Doubt, deadline); err != nil {
			return err
		}
		word, err := c.mem.readWord(c.mem.lockTarget(h.key), wordLock, deadline)
		if err == nil {
			c.mem.node.count(func(s *NodeStats) { s.Doubts++ })
			over = layout.Tag(word) == tag
		}
		return err
	})
	if over {
		h.tag, h.boot, h.since = tag, left.Boot, left.Since
	}
	return over, err
}

// take swaps a tag of this node into the lock word. If the word has had another tag, unchanged for
// longer than the lease, take fences the owner of that tag and takes the lock from it.
func (c *locker) take(h *held, deadline clock.Time) error {
	wait := firstBackOff
	for {
		var old uint64
		var asked clock.Time
		err := c.mem.retried(h.key.Server, deadline, func() (err error) {
			if !c.valid(h.key, h.tag, h.boot) {
				h.tag, h.boot = c.mem.node.nextTag(c.mem.links[h.key.Server].owner), c.mem.links[h.key.Server].mem.Boot
			}
			c.mem.cost.CAS++
			asked = c.mem.rt.Now()
			old, err = c.mem.swap(c.mem.lockTarget(h.key), 0, uint64(h.tag), deadline)
			return err // after an error the next attempt finds the outcome of this one
		})
		if err != nil {
			return err
		}
		if old == 0 || layout.Tag(old) == h.tag {
			c.mem.node.forgetSight(h.key)
			return nil
		}
		c.mem.cost.Retries++
		if c.mem.rt.Now() >= deadline {
			h.tag = 0 // the word certainly has another tag
			return kv.TimedOut(fmt.Errorf("lock %d of memory server %d is held by owner %d", h.key.Index, h.key.Server, layout.Tag(old).Owner()))
		}
		seen := c.mem.node.sighted(h.key, layout.Tag(old), asked, c.mem.rt.Now())
		if seen > c.mem.node.cfg.Lease {
			done, err := c.takeOver(h, layout.Tag(old), deadline)
			if done || err != nil {
				return err
			}
		}
		if seen > still {
			c.mem.rt.Sleep(c.untilNextLook(seen, deadline))
		}
		if c.mem.node.cfg.BackOff > 0 {
			c.mem.rt.Sleep(time.Duration(1 + c.mem.rand.Int64N(int64(wait))))
			wait = min(2*wait, c.mem.node.cfg.BackOff)
		}
	}
}

// untilNextLook returns the pause before the next poll of a lock word in which the node has seen
// the same tag for the time `seen`. The pause is seen/stillShare. It ends at the latest just after
// the lease, and not after the operation's deadline.
func (c *locker) untilNextLook(seen time.Duration, deadline clock.Time) time.Duration {
	wait := min(seen/stillShare, deadline.Sub(c.mem.rt.Now()))
	if left := c.mem.node.cfg.Lease - seen; left >= 0 {
		wait = min(wait, left+1) // one ns after the end of the lease
	}
	return wait
}

// takeOver takes a lock from an owner whose tag has not changed during the lease. First the server
// ends all connections of the owner, so that no request that the owner had in flight arrives later.
// takeOver returns true if this client holds the lock, false if the caller must try again.
func (c *locker) takeOver(h *held, from layout.Tag, deadline clock.Time) (bool, error) {
	err := c.fence(h.key.Server, from.Owner(), deadline)
	if err == nil {
		err = c.mem.reach(h.key.Server, deadline)
	}
	if err == nil && !c.valid(h.key, h.tag, h.boot) {
		return false, nil
	}
	var old uint64
	if err == nil {
		old, err = c.mem.swap(c.mem.lockTarget(h.key), uint64(from), uint64(h.tag), deadline)
	}
	if err != nil {
		return false, c.mem.prepareRetry(err, deadline)
	}
	if layout.Tag(old) != from {
		return false, nil
	}
	c.mem.node.forgetSight(h.key)
	c.mem.node.count(func(s *NodeStats) { s.Recovered++ })
	return true, nil
}

func (c *locker) fence(server int, owner uint32, deadline clock.Time) error {
	if owner == 0 {
		return nil // no client writes a tag with owner 0
	}
	defer c.mem.rt.Leave(c.mem.rt.Enter(kv.PhaseRPC))
	return memservice.Fence(c.mem.cfg.Context, c.mem.cfg.Manager, c.mem.node.cfg.Servers[server], owner, deadline)
}

// release releases a lock without a change of the page.
func (c *locker) release(h *held, deadline clock.Time) error {
	return c.commit(h, 0, nil, deadline)
}

// commit writes ranges of the page at address a, in this order, and releases the lock, with one
// doorbell. If mayPass allows it, commit instead hands the lock over when the WRITEs have been
// acknowledged. With NodeConfig.Uncombined it waits for the acknowledgements before it releases the
// lock. After commit the client does not hold the lock. errOwner means that nothing was written;
// after any other error the outcome is unknown.
func (c *locker) commit(h *held, a layout.Addr, ranges []layout.Range, deadline clock.Time) error {
	for i, r := range ranges {
		if err := c.mem.fab.MR().WriteAt(c.mem.page.Bytes[r.Off:r.Off+r.Len], c.mem.at.out+r.Off); err != nil {
			return errors.Join(err, kv.ErrTimeout)
		}
		c.mem.fab.Write(&c.mem.ops[i], c.mem.target(layout.At(a.Server(), a.Offset()+uint64(r.Off))), c.mem.at.out+r.Off, r.Len)
	}
	// An operation that has begun to write goes on for a while after its deadline.
	deadline = max(deadline, c.mem.rt.Now().Add(settleTimeout))
	pass := c.mayPass(h)
	if pass && len(ranges) == 0 && h.ticket.Pass(h.leaves(0)) {
		return nil
	}
	// first is true if the WRITEs must be acknowledged before the lock is handed over or released.
	first := len(ranges) > 0 && (pass || c.mem.node.cfg.Uncombined)
	if !first {
		c.unlock(h, len(ranges))
	}
	if !c.valid(h.key, h.tag, h.boot) {
		h.ticket.Leave(lock.Held{})
		return errOwner
	}
	c.wrote = c.wrote || len(ranges) > 0
	err := c.mem.chain(deadline, c.mem.chainOf(len(ranges), !first))
	switch {
	case err != nil:
		return c.resolve(h, a, ranges, !first, err, deadline)
	case pass && h.ticket.Pass(h.leaves(0)):
		return nil
	case first: // Uncombined, or the client that waited for the lock has left the queue
		// The WRITEs have been acknowledged, so the operation is done and must not be repeated,
		// even if the release fails.
		return ignoreRelease(c.commit(h, 0, nil, deadline))
	}
	h.ticket.Leave(lock.Held{})
	return nil
}

// unlock prepares operation i of c.ops: the WRITE that releases the lock word of h.
func (c *locker) unlock(h *held, i int) {
	c.mem.fab.Write(&c.mem.ops[i], c.mem.lockTarget(h.key), c.mem.wordAt(wordZero), 8)
}

// chainOf returns the first n operations of c.ops and, if release is true, the next one, which
// releases the lock.
func (c *memory) chainOf(n int, release bool) []*remotemem.Op {
	if release {
		n++
	}
	c.list = c.list[:0]
	for i := range n {
		c.list = append(c.list, &c.ops[i])
	}
	return c.list
}

var errOwner = errors.New("this node was suspected to be dead, and its lock was taken over")

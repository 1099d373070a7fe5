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

// locker takes and releases the locks of pages: first the local lock among the clients of the node,
// then the lock word in remote memory. It fences owners whose lease has ended, and finds the
// outcome of WRITEs whose completions failed.
type locker struct {
	memory
	// locks has the queues for the locks: those of the node, or of this client alone (NodeConfig.Unqueued).
	locks *lock.Table
	gate  verbs.Gate // opened when this client is the first of its node in the queue of a lock
	// wrote reports that the operation has posted WRITEs to a page that other clients can reach:
	// the server may or may not have executed them.
	wrote bool
}

const (
	// still is how long a tag must stay the same before the client polls the lock less often: after
	// that the pause between polls is the time for which the tag has been seen, divided by
	// stillShare.
	still      = 500 * time.Microsecond
	stillShare = 16
	// passShare bounds a series of hand-overs: it may last for the lease divided by passShare.
	passShare = 4
	// firstBackOff bounds the random pause after the first failed CAS, if NodeConfig.BackOff asks
	// for pauses.
	firstBackOff = time.Microsecond
	// settleTimeout is how long an operation may go on after its deadline to find the state of a
	// lock.
	settleTimeout = 20 * time.Millisecond
)

// held is a lock that this client holds.
type held struct {
	key    lock.Key
	ticket *lock.Ticket
	tag    layout.Tag
	boot   uint64
	since  clock.Time // when a client of the node swapped the tag into the word
}

// leaves returns the state in which this client leaves the lock word to the next client of its
// node.
func (h *held) leaves(doubt uint64) lock.Held {
	return lock.Held{Tag: uint64(h.tag), Doubt: doubt, Boot: h.boot, Since: h.since}
}

// mayPass reports whether a lock may be handed over. The word keeps the same tag during hand-overs,
// so their time is bounded: other nodes must not take this node for dead.
func (c *locker) mayPass(h *held) bool {
	return h.ticket.MayPass() && c.rt.Now().Sub(h.since) < c.node.cfg.Lease/passShare
}

// valid reports whether a tag of this node is still valid: the node has the same owner number, and
// the server has not restarted.
func (c *locker) valid(k lock.Key, tag layout.Tag, boot uint64) bool {
	l := &c.links[k.Server]
	return tag != 0 && l.owner == tag.Owner() && c.node.owner(k.Server) == tag.Owner() && l.mem.Boot == boot
}

// acquire takes the lock of a page: first among the clients of the node, then the word in the
// server's memory, unless the previous local client hands it over.
func (c *locker) acquire(a layout.Addr, deadline clock.Time) (*held, error) {
	if !c.inside(a) {
		return nil, fmt.Errorf("%w: address %v", ErrBroken, a)
	}
	defer c.rt.Leave(c.rt.Enter(kv.PhaseLock))
	began := c.rt.Now()
	h := &held{key: c.lockOf(a)}
	h.ticket = c.locks.Enter(h.key, c.gate.Open)
	left, err := c.queue(h.ticket, deadline)
	if err != nil {
		return nil, err
	}
	tries := c.cost.CAS
	over, err := c.inherit(h, left, deadline)
	if err == nil && !over {
		err = c.take(h, deadline)
	}
	if err != nil {
		c.drop(h, left)
		return nil, err
	}
	wait := c.rt.Now().Sub(began)
	c.cost.Wait += wait
	if over {
		c.cost.HandOvers++
	} else {
		h.since = began.Add(wait)
	}
	c.node.count(func(s *NodeStats) {
		s.Acquires++
		s.CAS += uint64(c.cost.CAS - tries)
		if over {
			s.HandOvers++
		}
		s.waited(wait)
	})
	return h, nil
}

// queue waits until the client is the first of its node. When the deadline passes, it leaves the
// queue.
func (c *locker) queue(t *lock.Ticket, deadline clock.Time) (lock.Held, error) {
	for {
		ahead, left := t.Place()
		if ahead == 0 {
			return left, nil
		}
		// A queue that the client has left may have opened the gate. Then the loop checks the place
		// in this queue again.
		if err := c.gate.Wait(deadline); err != nil && t.GiveUp() {
			return lock.Held{}, kv.TimedOut(fmt.Errorf("other clients of this node hold the lock: %w", err))
		}
	}
}

// drop gives up a lock that the client has not taken. Nevertheless the lock word may have this
// node's tag, if the outcome of a CAS is unknown.
func (c *locker) drop(h *held, left lock.Held) {
	l := &c.links[h.key.Server]
	switch {
	case h.tag != 0: // the outcome of a CAS is unknown
		h.ticket.Leave(h.leaves(l.mem.Conn))
	default:
		h.ticket.Leave(left)
	}
}

// inherit takes over the lock word in the state in which the previous local holder left it. It
// returns true if the node holds the word.
func (c *locker) inherit(h *held, left lock.Held, deadline clock.Time) (bool, error) {
	tag := layout.Tag(left.Tag)
	if tag == 0 {
		return false, nil
	}
	for {
		err := c.reach(h.key.Server, deadline)
		if err == nil && !c.valid(h.key, tag, left.Boot) {
			// the owner was fenced, and other nodes take the word over; or the server has
			// restarted, which cleared the memory of its NIC
			return false, nil
		}
		if err == nil && left.Doubt == 0 {
			h.tag, h.boot, h.since = tag, left.Boot, left.Since
			return true, nil
		}
		if err == nil {
			err = memservice.End(c.cfg.Context, c.cfg.Manager, c.node.cfg.Servers[h.key.Server], left.Doubt, deadline)
		}
		var word uint64
		if err == nil {
			word, err = c.readWord(c.lockTarget(h.key), wordLock, deadline)
		}
		if err == nil {
			c.node.count(func(s *NodeStats) { s.Doubts++ })
			if layout.Tag(word) != tag {
				return false, nil
			}
			h.tag, h.boot, h.since = tag, left.Boot, left.Since
			return true, nil
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return false, err
		}
	}
}

// take swaps this node's tag into the lock word. If the word has shown the same tag for longer than
// the lease, take fences its owner and takes the word over.
func (c *locker) take(h *held, deadline clock.Time) error {
	wait := firstBackOff
	for {
		err := c.reach(h.key.Server, deadline)
		if err != nil {
			if err := c.prepareRetry(err, deadline); err != nil {
				return err
			}
			continue
		}
		if !c.valid(h.key, h.tag, h.boot) {
			h.tag, h.boot = c.node.nextTag(c.links[h.key.Server].owner), c.links[h.key.Server].mem.Boot
		}
		c.cost.CAS++
		asked := c.rt.Now()
		old, err := c.swap(c.lockTarget(h.key), 0, uint64(h.tag), deadline)
		if err != nil { // the next attempt finds the outcome of this one
			if err := c.prepareRetry(err, deadline); err != nil {
				return err
			}
			continue
		}
		if old == 0 || layout.Tag(old) == h.tag {
			c.node.forgetSight(h.key)
			return nil
		}
		c.cost.Retries++
		if c.rt.Now() >= deadline {
			h.tag = 0 // the word certainly has the tag of another owner
			return kv.TimedOut(fmt.Errorf("lock %d of memory server %d is held by owner %d", h.key.Index, h.key.Server, layout.Tag(old).Owner()))
		}
		seen := c.node.sighted(h.key, layout.Tag(old), asked, c.rt.Now())
		if seen > c.node.cfg.Lease {
			done, err := c.takeOver(h, layout.Tag(old), deadline)
			if done || err != nil {
				return err
			}
		}
		if seen > still {
			c.rt.Sleep(c.untilNextLook(seen, deadline))
		}
		if c.node.cfg.BackOff > 0 {
			c.rt.Sleep(time.Duration(1 + c.rand.Int64N(int64(wait))))
			wait = min(2*wait, c.node.cfg.BackOff)
		}
	}
}

// untilNextLook returns the pause before the next poll of a lock word whose tag the node has seen
// for the given time: a share of that time, but not beyond the end of the lease, or of the
// operation.
func (c *locker) untilNextLook(seen time.Duration, deadline clock.Time) time.Duration {
	wait := min(seen/stillShare, deadline.Sub(c.rt.Now()))
	if left := c.node.cfg.Lease - seen; left >= 0 {
		wait = min(wait, left+1) // one ns after the end of the lease
	}
	return wait
}

// takeOver takes a lock from an owner whose tag has not changed during the lease. First it makes
// the server end all connections of the owner. Then no request that the owner had in flight can
// arrive after this client's requests.
func (c *locker) takeOver(h *held, from layout.Tag, deadline clock.Time) (bool, error) {
	err := c.fence(h.key.Server, from.Owner(), deadline)
	if err == nil {
		err = c.reach(h.key.Server, deadline)
	}
	if err == nil && !c.valid(h.key, h.tag, h.boot) {
		return false, nil
	}
	var old uint64
	if err == nil {
		old, err = c.swap(c.lockTarget(h.key), uint64(from), uint64(h.tag), deadline)
	}
	if err != nil {
		return false, c.prepareRetry(err, deadline)
	}
	if layout.Tag(old) != from {
		return false, nil
	}
	c.node.forgetSight(h.key)
	c.node.count(func(s *NodeStats) { s.Recovered++ })
	return true, nil
}

// fence makes a server end the connections of an owner.
func (c *locker) fence(server int, owner uint32, deadline clock.Time) error {
	if owner == 0 {
		return nil // no client writes such a word
	}
	defer c.rt.Leave(c.rt.Enter(kv.PhaseRPC))
	return memservice.Fence(c.cfg.Context, c.cfg.Manager, c.node.cfg.Servers[server], owner, deadline)
}

// release gives up a lock without a change of the page.
func (c *locker) release(h *held, deadline clock.Time) error {
	return c.commit(h, 0, nil, deadline)
}

// commit writes ranges of the page at a, in this order, and releases the lock, with one doorbell;
// or, when the WRITEs have been acknowledged, hands the lock over to the next client of the node
// (NodeConfig.Uncombined: or releases it). Afterwards the client does not hold the lock. errOwner means that nothing was written; after any
// other error the outcome is unknown.
func (c *locker) commit(h *held, a layout.Addr, ranges []layout.Range, deadline clock.Time) error {
	for i, r := range ranges {
		if err := c.fab.MR().WriteAt(c.page.Bytes[r.Off:r.Off+r.Len], c.at.out+r.Off); err != nil {
			return errors.Join(err, kv.ErrTimeout)
		}
		c.fab.Write(&c.ops[i], c.target(layout.At(a.Server(), a.Offset()+uint64(r.Off))), c.at.out+r.Off, r.Len)
	}
	// an operation that has begun to write finishes
	deadline = max(deadline, c.rt.Now().Add(settleTimeout))
	pass := c.mayPass(h)
	if pass && len(ranges) == 0 && h.ticket.Pass(h.leaves(0)) {
		return nil
	}
	// first: the WRITEs must be acknowledged before the client gives up the lock
	first := len(ranges) > 0 && (pass || c.node.cfg.Uncombined)
	if !first {
		c.unlock(h, len(ranges))
	}
	if !c.valid(h.key, h.tag, h.boot) {
		h.ticket.Leave(lock.Held{})
		return errOwner
	}
	c.wrote = c.wrote || len(ranges) > 0
	err := c.chain(deadline, c.chainOf(len(ranges), !first))
	switch {
	case err != nil:
		return c.resolve(h, a, ranges, !first, err, deadline)
	case pass && h.ticket.Pass(h.leaves(0)):
		return nil
	case first: // as Uncombined asks, or the client that waited for the lock has left the queue
		// The WRITEs have been acknowledged, so the operation is done and must not be repeated,
		// even if the release fails.
		return ignoreRelease(c.commit(h, 0, nil, deadline))
	}
	h.ticket.Leave(lock.Held{})
	return nil
}

// unlock makes operation i a WRITE that releases the lock word.
func (c *locker) unlock(h *held, i int) {
	c.fab.Write(&c.ops[i], c.lockTarget(h.key), c.wordAt(wordZero), 8)
}

// chainOf returns the first n operations and, if release is true, the one that releases the lock.
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

package sherman

import (
	"errors"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// resolve finds the outcome of a commit whose connection failed. The client connects again. The
// server first ends the old connection, so that none of its requests arrives later. Then, if the
// node was not fenced, the lock word shows the outcome. If the word still has the node's tag, the
// client repeats all WRITEs, which does no harm if they were executed before. If the word has
// another value and the client had posted the WRITE that releases the lock, that WRITE was
// executed, and so were all WRITEs before it. If the client had not posted it, another node has
// taken the lock over.
func (c *locker) resolve(h *held, a layout.Addr, ranges []layout.Range, released bool, err error, deadline clock.Time) error {
	late := max(deadline, c.mem.rt.Now().Add(settleTimeout))
	c.mem.node.count(func(s *NodeStats) { s.Doubts++ })
	for {
		if errors.Is(err, errOwner) {
			h.ticket.Leave(lock.Held{})
			return kv.TimedOut(errTaken)
		}
		if err := c.mem.prepareRetry(err, late); err != nil {
			h.ticket.Leave(h.leaves(c.mem.links[h.key.Server].mem.Conn))
			return kv.TimedOut(err)
		}
		var done bool
		if done, err = c.repeat(h, a, ranges, &released, late); err == nil && done {
			h.ticket.Leave(lock.Held{})
			return nil
		}
	}
}

var errTaken = errors.New("this node was fenced while it wrote")

// repeat reads the lock word and repeats the commit if the word still has the node's tag. It
// returns true if the commit is complete: it was repeated, or the client's own release has changed
// the word. *released says whether the client has posted a WRITE that releases the lock.
func (c *locker) repeat(h *held, a layout.Addr, ranges []layout.Range, released *bool, deadline clock.Time) (bool, error) {
	if err := c.mem.reach(h.key.Server, deadline); err != nil {
		return false, err
	}
	if !c.valid(h.key, h.tag, h.boot) {
		return false, errOwner
	}
	word, err := c.mem.readWord(c.mem.lockTarget(h.key), wordLock, deadline)
	if err != nil {
		return false, err
	}
	if layout.Tag(word) != h.tag {
		if !*released {
			return false, errOwner
		}
		return true, nil
	}
	for i, r := range ranges {
		c.mem.fab.Write(&c.mem.ops[i], c.mem.target(layout.At(a.Server(), a.Offset()+uint64(r.Off))), c.mem.at.out+r.Off, r.Len)
	}
	c.unlock(h, len(ranges))
	*released = true
	return true, c.mem.chain(deadline, c.mem.chainOf(len(ranges), true))
}

// settle releases the lock words that may still have a tag of this node although no client of the
// node holds the lock or waits for it.
func (c *locker) settle(deadline clock.Time) {
	for _, k := range c.locks.Doubts() {
		h := &held{key: k, ticket: c.locks.Enter(k, c.gate.Open)}
		left, err := c.queue(h.ticket, deadline)
		if err != nil {
			continue
		}
		over, err := c.inherit(h, left, deadline)
		switch {
		case err != nil:
			h.ticket.Leave(left)
		case over:
			// if this fails, the node's next client releases the word, or another node takes it
			// over after the lease
			_ = c.release(h, deadline)
		default:
			h.ticket.Leave(lock.Held{})
		}
	}
}

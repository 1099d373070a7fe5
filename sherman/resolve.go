package sherman

import (
	"errors"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// resolve finds out what became of a commit whose connection failed. A new connection ends the old one first, so nothing of it
// comes late. Then, if the node was not fenced, the word tells: it is ours still, and everything is written once more, which
// changes nothing if it was written before; or it is not, and then the release was executed, and so was all before it.
func (c *Client) resolve(h *held, a layout.Addr, ranges []layout.Range, released bool, err error, deadline clock.Time) error {
	late := max(deadline, c.rt.Now().Add(settlePatience))
	c.node.count(func(s *NodeStats) { s.Doubts++ })
	for {
		if errors.Is(err, errOwner) {
			h.ticket.Leave(lock.Held{})
			return timeout(errTaken)
		}
		if err := c.again(err, late); err != nil {
			h.ticket.Leave(h.leaves(c.links[h.key.Server].mem.Conn))
			return timeout(err)
		}
		var done bool
		if done, err = c.repeat(h, a, ranges, &released, late); err == nil && done {
			h.ticket.Leave(lock.Held{})
			return nil
		}
	}
}

var errTaken = errors.New("this node was fenced while it wrote")

// repeat does a commit again if it has not been done.
func (c *Client) repeat(h *held, a layout.Addr, ranges []layout.Range, released *bool, deadline clock.Time) (bool, error) {
	if err := c.reach(h.key.Server, deadline); err != nil {
		return false, err
	}
	if !c.valid(h.key, h.tag, h.boot) {
		return false, errOwner
	}
	word, err := c.readWord(c.lockTarget(h.key), wordLock, deadline)
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
		c.fab.Write(&c.ops[i], c.target(layout.At(a.Server(), a.Offset()+uint64(r.Off))), c.at.out+r.Off, r.Len)
	}
	c.unlock(h, len(ranges))
	*released = true
	return true, c.chain(deadline, c.chainOf(len(ranges), true))
}

// settle gives back the words that nobody of this node cares for and that may still carry its tag.
func (c *Client) settle(deadline clock.Time) {
	for _, k := range c.node.locks.Doubts() {
		h := &held{key: k, ticket: c.node.locks.Enter(k, c.gate.Open)}
		left, err := c.queue(h.ticket, deadline)
		if err != nil {
			continue
		}
		over, err := c.inherit(h, left, deadline)
		switch {
		case err != nil:
			h.ticket.Leave(left)
		case over:
			_ = c.release(h, deadline) // or the next client of the node does it, or the lease ends
		default:
			h.ticket.Leave(lock.Held{})
		}
	}
}

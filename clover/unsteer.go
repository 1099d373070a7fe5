package clover

import "github.com/rdmalab/rdmalab/softrnic/clock"

// unsteer is called before the client looks for the outcome of an append that was not answered. After
// it, that append can take effect only on the node that the client named, or on a node that a later
// look at the chain finds.
//
// The append's request may still be in flight, or wait in a switch that steers. Suppose that the
// switch sends it to the newest node after the client has looked for its node without finding it:
// then it is carried out in addition to the append that the client makes next. A WRITE to an entry
// that does not cover a whole node makes the switch forget that the entry is a node of the key. A
// request of the old connection that reaches the switch after that goes to the node that the client
// named. A request that the switch has forwarded earlier went to a node that was linked by then.
// Either that node is the end of the chain that the client is about to find, and the append happens
// there once at most; or it has a successor, and the old request fails. The WRITE has no bytes: it
// leaves the memory unchanged, even if the entry belongs to another client by now.
func (c *appender) unsteer(n node, deadline clock.Time) error {
	if err := c.owns(n, deadline); err != nil {
		return err // the entry may hold another node now
	}
	p, s, err := c.place(n.at, deadline)
	if err != nil {
		return err
	}
	o := &c.ops[0]
	c.fab.Write(o, s.target(p.Offset), c.at.words, 0)
	return c.do(deadline, o)
}

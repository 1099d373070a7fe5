package clover

import "github.com/rdmalab/rdmalab/softrnic/clock"

// fence makes an append without answer one that can only happen where this client has asked for it, or where a look at the chain after
// this shows it.
//
// The request may still be on its way, or wait in a switch that steers: sent on, to the newest node, when its client has looked for its
// node and not found it, it would be carried out beside the one that the client then makes. A WRITE to an entry that is no whole node
// makes such a switch forget that the entry is a node of the key. Whatever of the old connection comes to it from then on goes to where
// it was sent. What it has sent on before went to a node that was linked by then; so that is the end of the chain that the client is
// about to find, and the append is made there once at most, or it has a successor, and the old request fails. The WRITE has no bytes:
// the memory stays as it is, whosever the entry is by now.
func (c *Client) fence(n node, deadline clock.Time) error {
	if err := c.owns(n, deadline); err != nil {
		return err // what is in the node's place now says nothing about it
	}
	p, s, err := c.place(n.at, deadline)
	if err != nil {
		return err
	}
	o := &c.ops[0]
	c.fab.Write(o, s.target(p.Offset), c.at.words, 0)
	return c.do(deadline, o)
}

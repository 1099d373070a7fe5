package clover

import "github.com/rdmalab/rdmalab/softrnic/clock"

// unsteer is called before the client looks for the outcome of an append that was not answered.
// After unsteer, that append can take effect only on the node that the client named, or on a node
// that the client finds when it reads the chain afterwards. n is the client's node.
//
// Why it is needed: the append's request may still be in flight, or may wait in a switch that
// steers. The client may read the chain without finding its node, and the switch may then send the
// request to the newest node. So the append would happen in addition to the one that the client
// makes next.
//
// How it works: when a WRITE to a node is shorter than the node, the switch forgets that this
// memory is a node of the key. If a request of the old connection reaches the switch after that, it
// goes to the node that the client named. If the switch forwarded the request earlier, the request
// went to a node that was already linked. That node may be the end of the chain that the client is
// about to find; then the append happens there at most once. Or that node has a successor; then the
// old request fails. The WRITE has no bytes: it leaves the memory unchanged, even if the memory
// belongs to another client by now.
func (c *appender) unsteer(n node, deadline clock.Time) error {
	if err := c.session.owns(n, deadline); err != nil {
		return err // the entry of n may have another client's node by now
	}
	p, s, err := c.finder.place(n.at, deadline)
	if err != nil {
		return err
	}
	o := &c.session.ops[0]
	c.session.fab.Write(o, s.target(p.Offset), c.session.at.words, 0)
	return c.session.do(deadline, o)
}

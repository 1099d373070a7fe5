package cloversteer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// While an append to a key is in flight, other appends to the key wait in the switch. When the one
// in flight is answered, the switch sends the first waiting append; the others go on waiting. These
// others are concurrent with the append that was sent, so their values may come before its value:
// they are overwritten at once, before any client could read them. So when the append that was sent
// has succeeded, the switch does not add the nodes of the others to the chain. It changes each of
// the others into a CAS on the header of its own node, which makes this node name the node of the
// append that was sent as its successor. So the chain grows by one node for all of them.
//
// Why that is correct:
//
//   - An append is absorbed only if another append was sent after its arrival, and has succeeded.
//     So both were in progress when the other append took effect, and the absorbed value may come
//     before the value of the other append.
//   - Until its client is answered, no other client knows the node of an absorbed append. After
//     that, a client that reads the node finds a successor that is in the chain. An absorbed append
//     makes no other node reachable, so chains stay whole, whichever of these requests are lost.
//   - If the append in flight fails, or is not answered in time, the waiting ones are sent as
//     ordinary appends: their nodes have no successor.
//   - The CAS goes to the server on which the client's node is. A client that has given up the
//     append first connects to that server again, which ends the former connection, and then looks
//     for the node. So a late copy of the CAS changes nothing. Otherwise the copy could give the
//     node a successor after its client has appended the node elsewhere.
//   - Tombstones (nodes that delete their key) neither absorb nor are absorbed, because appends
//     before and after them have other outcomes.
//
// absorbed_test.go has a model of this, which tries all orders of events.

// absorb is called when the append of d has succeeded. It changes the waiting appends that this
// append may have overwritten, and sends them to the server.
func (m *Machine) absorb(c *pipeline.Ctx, k *chain, d *decision) {
	by := m.chains.node(d.node)
	if by == nil || by.dead {
		return
	}
	for i := k.first; i != none; {
		next := m.wait.list[i].next
		if w := &m.wait.list[i]; !w.read && w.behind < d.sent && c.Holding(w.hold) {
			m.absorbOne(c, k, i, d, by)
		}
		i = next
	}
}

// absorbOne changes the waiting append i into a CAS on the header of its own node, and sends it.
// The CAS makes `node`, which append `by` has added to the chain, the successor of that node.
// absorbOne does nothing if the append's own node is a tombstone, or is not in the memory that the
// request names.
func (m *Machine) absorbOne(c *pipeline.Ctx, k *chain, i int32, by *decision, node *node) {
	w := &m.wait.list[i]
	n, f := m.chains.node(w.node), &w.frame
	if n == nil || n.dead || n.incarnation != w.incarnation || n.rkey != f.AtomicETH.RKey {
		return
	}
	d := m.chains.decide(w.flow, f, w.incarnation, k, n)
	d.steered, d.absorbed, d.to, d.version, d.stale = true, true, n.ref, n.version, false
	d.compare = uint64(layout.Header(n.version))
	d.swap = uint64(layout.Superseded(n.version, by.location))
	if d.place = (place{}); k.has(node) {
		d.place = place{k.gen, node.seq - 1}
	}
	d.apply(&f.AtomicETH)
	m.hot.find(k.id).steer()
	c.Release(w.hold, f, text(c, f.BTH.Opcode, d))
	m.unhold(i)
}

// joined handles the response to an absorbed append. If the append succeeded, the switch may steer
// requests for its node from then on.
func (t *chains) joined(k *chain, d *decision, original uint64) {
	if original != d.compare {
		t.stats.Lost++
		return
	}
	t.stats.Absorbed++
	if n := t.node(d.node); n != nil && d.gen == k.gen && d.seq != 0 && !k.has(n) {
		n.place = d.place
	}
}

// tellAbsorbed changes the response to an absorbed append. If the append succeeded, the response
// looks to the client as that of an ordinary append that has succeeded; otherwise it is dropped.
func (m *Machine) tellAbsorbed(c *pipeline.Ctx, d *decision, p *pipeline.Parsed) pipeline.Verdict {
	switch p.AtomicAck {
	case d.askedCompare:
		if d.askedCompare == d.compare {
			return pipeline.Forward()
		}
		return pipeline.Drop(ReasonTwice)
	case d.compare:
		p.AtomicAck = uint64(layout.Told(layout.Word(d.askedCompare).EntryVersion(), layout.Word(d.swap).NextVersion()))
		return m.answer(c, d)
	}
	return pipeline.Drop(ReasonTwice)
}

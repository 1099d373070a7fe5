package cloversteer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// none is the end of a list of waiters. As flow.held it means that no request of the flow waits.
const none = -1

// waiter is an append or a READ that waits in the switch.
type waiter struct {
	read   bool          // true: a READ of the node `node`; false: an append to it
	parts  parts         // packets of the response to a READ
	format layout.Format // layout of the node that a READ returns
	hold   pipeline.HoldID
	flow   *flow
	psn    wire.PSN
	next   int32 // index of the next request in the list of the chain
	chain  id
	node   ref
	// incarnation is the incarnation of the memory to which an append goes. version is the version
	// that the client of the append expects in the header of the node.
	incarnation uint32
	version     layout.Version
	// behind is the number (flight.sent) of the append in flight for which this request waits.
	behind uint64
	frame  wire.Frame
}

// waiting holds the requests that wait in the switch, in one list for each chain.
type waiting struct {
	list []waiter
	free []int32
}

func newWaiting(n int) waiting {
	w := waiting{list: make([]waiter, n), free: make([]int32, n)}
	for i := range w.free {
		w.free[i] = int32(n - 1 - i)
	}
	return w
}

func (t *waiting) full() bool { return len(t.free) == 0 }

// add puts a request at the end of its chain's list.
func (t *waiting) add(k *chain, w *waiter) {
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	w.chain, w.next, w.frame.Payload = k.id, none, nil
	t.list[i] = *w
	w.flow.held = i
	if k.last == none {
		k.first = i
	} else {
		t.list[k.last].next = i
	}
	k.last = i
}

// remove deletes the request i from the list of its chain k; k is nil if the switch has forgotten
// the chain.
func (t *waiting) remove(k *chain, i int32) {
	w := &t.list[i]
	if k != nil {
		before := int32(none)
		for j := k.first; j != none; before, j = j, t.list[j].next {
			if j != i {
				continue
			}
			if before == none {
				k.first = w.next
			} else {
				t.list[before].next = w.next
			}
			if k.last == i {
				k.last = before
			}
			break
		}
	}
	w.flow.held = none
	*w = waiter{}
	t.free = append(t.free, i)
}

// hold makes an append wait for the append in flight to the same chain. If there is no room, the
// append is forwarded unchanged.
func (m *Machine) hold(q *request, k *chain, a *appending) pipeline.Verdict {
	if m.wait.full() {
		m.stats.NoRoom++
		return m.chains.plain(q, k, a)
	}
	v := q.c.Hold(q.p, q.c.Now.Add(m.cfg.Hold))
	if v.Action != pipeline.ActHold {
		m.stats.NoRoom++
		return m.chains.plain(q, k, a)
	}
	m.stats.Held++
	d := m.chains.decide(q.flow, &q.p.Frame, a.incarnation, k, a.node)
	d.gen = 0 // if the pipeline sends the append because its time is over, the append has no known place in the chain
	m.wait.add(k, &waiter{
		hold: v.ID, flow: q.flow, psn: q.p.BTH.PSN, node: a.node.ref, incarnation: a.incarnation, version: a.version,
		behind: k.sent, frame: q.p.Frame,
	})
	return v
}

// holdRead makes a READ wait for the append in flight. If the switch sent the READ now, the node
// that it returns would soon have a successor, and the client would have to read the successor,
// too. ok is false if there is no room.
func (m *Machine) holdRead(q *request, k *chain, n *node, p parts, format layout.Format) (v pipeline.Verdict, ok bool) {
	if m.wait.full() {
		return v, false
	}
	if v = q.c.Hold(q.p, q.c.Now.Add(m.cfg.Hold)); v.Action != pipeline.ActHold {
		return v, false
	}
	m.stats.HeldReads++
	psn := q.p.BTH.PSN
	q.flow.add(psn, kindRead).asked = q.p.RETH.VA
	m.wait.add(k, &waiter{read: true, parts: p, format: format, hold: v.ID, flow: q.flow, psn: psn, node: n.ref, frame: q.p.Frame})
	return v, true
}

func (m *Machine) unhold(i int32) { m.wait.remove(m.chains.byKey.find(m.wait.list[i].chain), i) }

// letGo sends the waiting request of a flow to the server, because another request of the flow
// follows it.
func (m *Machine) letGo(c *pipeline.Ctx, fl *flow) {
	if fl.held == none {
		return
	}
	m.release(c, fl.held)
	m.stats.LetGo++
}

// release sends the waiting request i to the server: an append unchanged, a READ by releaseRead.
func (m *Machine) release(c *pipeline.Ctx, i int32) {
	if m.wait.list[i].read {
		m.releaseRead(c, i)
		return
	}
	if !c.Release(m.wait.list[i].hold, nil, "") {
		m.stats.Expired++ // its hold time was over: the pipeline has already sent the append
	}
	m.unhold(i)
}

// releaseRead sends the waiting READ i to the node that is the newest known one now.
func (m *Machine) releaseRead(c *pipeline.Ctx, i int32) {
	w := &m.wait.list[i]
	k, n := m.chains.byKey.find(w.chain), m.chains.node(w.node)
	var d *decision
	if k != nil && n != nil && c.Holding(w.hold) {
		d = m.steerRead(w.flow, &w.frame, k, n, w.parts, w.format)
	}
	if d != nil {
		c.Release(w.hold, &w.frame, text(c, w.frame.BTH.Opcode, d))
	} else {
		c.Release(w.hold, nil, "")
	}
	m.unhold(i)
}

// releaseReads sends all waiting READs of a chain to the server.
func (m *Machine) releaseReads(c *pipeline.Ctx, k *chain) {
	for i := k.first; i != none; {
		next := m.wait.list[i].next
		if m.wait.list[i].read {
			m.releaseRead(c, i)
		}
		i = next
	}
}

// goOn is called when the append in flight to a chain has been answered. It sends all waiting
// READs, and then the waiting appends up to the first that becomes the new one in flight.
func (m *Machine) goOn(c *pipeline.Ctx, k *chain) {
	m.releaseReads(c, k)
	for k.first != none && !k.busy {
		i := k.first
		w := &m.wait.list[i]
		n := m.chains.node(w.node)
		if n == nil || !c.Holding(w.hold) {
			m.release(c, i)
			continue
		}
		f := &w.frame
		d := m.chains.decide(w.flow, f, w.incarnation, k, n)
		m.chains.launch(c.Now, k, d)
		var ok bool
		if m.chains.steer(k, d, w.version) {
			d.apply(&f.AtomicETH)
			m.hot.find(k.id).steer()
			ok = c.Release(w.hold, f, text(c, f.BTH.Opcode, d))
		} else {
			ok = c.Release(w.hold, nil, "")
		}
		if !ok {
			k.busy = false
		}
		m.unhold(i)
	}
}

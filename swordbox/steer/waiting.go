package steer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// none is no waiter.
const none = -1

// waiting is the appends that wait, in lists by chain.
type waiting struct {
	list []waiter
	free []int32
}

// waiter is an append or a READ that waits in the switch.
type waiter struct {
	// read says that it is a READ of node; format is that of its answer.
	read   bool
	format layout.Format
	id     pipeline.HoldID
	row    *row
	psn    wire.PSN
	next   int32
	// Its chain, the node that it appends, and the packet.
	key     id
	node    ref
	life    uint32 // of the memory that the packet goes to
	version layout.Version
	frame   wire.Frame
}

func newWaiting(n int) waiting {
	w := waiting{list: make([]waiter, n), free: make([]int32, n)}
	for i := range w.free {
		w.free[i] = int32(n - 1 - i)
	}
	return w
}

// hold lets an append wait for its chain. With no room it goes on as it is.
func (m *Machine) hold(q *request, k *chain, a *appending) pipeline.Verdict {
	if len(m.wait.free) == 0 {
		m.stats.NoRoom++
		return m.plain(q, k, a)
	}
	v := q.c.Hold(q.p, q.c.Now.Add(m.cfg.Hold))
	if v.Action != pipeline.ActHold {
		m.stats.NoRoom++
		return m.plain(q, k, a)
	}
	m.stats.Held++
	i := m.wait.free[len(m.wait.free)-1]
	m.wait.free = m.wait.free[:len(m.wait.free)-1]
	w := &m.wait.list[i]
	*w = waiter{
		id: v.ID, row: q.row, psn: q.p.BTH.PSN, next: none, key: id{k.key, k.life}, node: a.node.ref,
		life: a.life, version: a.version, frame: q.p.Frame,
	}
	w.frame.Payload = nil
	d := m.decide(q.row, &w.frame, a.life, k, a.node)
	d.gen = 0 // if nobody releases it, nothing is known of when it went
	q.row.held = i
	m.enqueue(k, i)
	return v
}

// enqueue puts a waiter at the end of its chain's list.
func (m *Machine) enqueue(k *chain, i int32) {
	if k.last == none {
		k.first = i
	} else {
		m.wait.list[k.last].next = i
	}
	k.last = i
}

// holdRead lets a READ wait for the append that is under way: sent now, it would meet a node that has a successor by then, and its
// client would have to read on. ok is false if there is no room.
func (m *Machine) holdRead(q *request, k *chain, n *node, format layout.Format) (v pipeline.Verdict, ok bool) {
	if len(m.wait.free) == 0 {
		return v, false
	}
	if v = q.c.Hold(q.p, q.c.Now.Add(m.cfg.Hold)); v.Action != pipeline.ActHold {
		return v, false
	}
	m.stats.HeldReads++
	i := m.wait.free[len(m.wait.free)-1]
	m.wait.free = m.wait.free[:len(m.wait.free)-1]
	w := &m.wait.list[i]
	*w = waiter{
		read: true, format: format, id: v.ID, row: q.row, psn: q.p.BTH.PSN, next: none, key: id{k.key, k.life}, node: n.ref, frame: q.p.Frame,
	}
	w.frame.Payload = nil
	q.row.add(w.psn, kindRead).asked = w.frame.RETH.VA
	q.row.held = i
	m.enqueue(k, i)
	return v, true
}

// releaseRead sends a READ on, to the newest node that is known now.
func (m *Machine) releaseRead(c *pipeline.Ctx, i int32) {
	w := &m.wait.list[i]
	k, n := m.chains.find(w.key), m.nodeAt(w.node)
	if k == nil || n == nil || !c.Holding(w.id) {
		c.Release(w.id, nil, "")
		m.unhold(i)
		return
	}
	if d := m.steerRead(w.row, &w.frame, k, n, w.format); d != nil {
		c.Release(w.id, &w.frame, text(c, w.frame.BTH.Opcode, d))
	} else {
		c.Release(w.id, nil, "")
	}
	m.unhold(i)
}

// releaseReads lets all READs of a chain go.
func (m *Machine) releaseReads(c *pipeline.Ctx, k *chain) {
	for i := k.first; i != none; {
		next := m.wait.list[i].next
		if m.wait.list[i].read {
			m.releaseRead(c, i)
		}
		i = next
	}
}

// unhold takes a waiter out of its list.
func (m *Machine) unhold(i int32) {
	w := &m.wait.list[i]
	if k := m.chains.find(w.key); k != nil {
		before := int32(none)
		for j := k.first; j != none; before, j = j, m.wait.list[j].next {
			if j != i {
				continue
			}
			if before == none {
				k.first = w.next
			} else {
				m.wait.list[before].next = w.next
			}
			if k.last == i {
				k.last = before
			}
			break
		}
	}
	w.row.held = none
	*w = waiter{}
	m.wait.free = append(m.wait.free, i)
}

// letGo sends what waits of a row to where its client meant it: something comes behind it that must not wait.
func (m *Machine) letGo(c *pipeline.Ctx, w *row) {
	if w.held == none {
		return
	}
	m.release(c, w.held)
	m.stats.LetGo++
}

// release sends a waiter on, an append as it came.
func (m *Machine) release(c *pipeline.Ctx, i int32) {
	if m.wait.list[i].read {
		m.releaseRead(c, i)
		return
	}
	if !c.Release(m.wait.list[i].id, nil, "") {
		m.stats.Expired++ // it went by itself
	}
	m.unhold(i)
}

// goOn sends the next append of a chain whose last one was answered.
func (m *Machine) goOn(c *pipeline.Ctx, k *chain) {
	m.releaseReads(c, k)
	for k.first != none && !k.busy {
		i := k.first
		w := &m.wait.list[i]
		n := m.nodeAt(w.node)
		if n == nil || !c.Holding(w.id) {
			m.release(c, i)
			continue
		}
		f := &w.frame
		d := m.decide(w.row, f, w.life, k, n)
		m.launch(c, k, d)
		var ok bool
		if m.steerAppend(k, d, w.version) {
			d.apply(&f.AtomicETH)
			m.hot.find(k.key, k.life).steer()
			ok = c.Release(w.id, f, text(c, f.BTH.Opcode, d))
		} else {
			ok = c.Release(w.id, nil, "")
		}
		if !ok {
			k.busy = false
		}
		m.unhold(i)
	}
}

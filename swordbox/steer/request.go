package steer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Opcodes that steering knows.
const (
	opAtomic  = wire.OpAtomic
	opRead    = wire.OpRead
	atomicAck = wire.RCAtomicAck
)

// request is a packet at hand.
type request struct {
	c    *pipeline.Ctx
	s    conntrack.Seen
	row  *row
	rule *rules.Rule
	p    *pipeline.Parsed
}

// fresh decides about a new request.
func (m *Machine) fresh(q *request) pipeline.Verdict {
	f := &q.p.Frame
	st := m.stores[q.rule.Server]
	switch op := f.BTH.Opcode; {
	case op == wire.RCWriteOnly && f.RETH.Length == superLen && len(f.Payload) == superLen:
		m.learn(q.rule.Server, f.RETH.VA, f.RETH.RKey, f.Payload)
	case op == wire.RCReadRequest && f.RETH.Length == superLen:
		d := q.row.add(f.BTH.PSN, kindSuper)
		d.server, d.to.va, d.rkey = q.rule.Server, f.RETH.VA, f.RETH.RKey
	case st == nil:
	case op == wire.RCCmpSwap:
		return m.swap(q, st)
	case op == wire.RCReadRequest:
		return m.read(q, st)
	case op.Has(wire.HasRETH) || op.Is(wire.OpAtomic):
		m.data(st, f, true)
	}
	return pipeline.Forward()
}

// unsure handles a request that the server may or may not carry out, or whose answer may not pass: what it could change is
// forgotten.
func (m *Machine) unsure(q *request) { m.doubt(q.rule, &q.p.Frame) }

// Stray takes note of a request that no row is for, under a rule: it goes on, and its answer is not seen.
func (m *Machine) Stray(r *rules.Rule, f *wire.Frame) {
	if r.Mode == rules.Hard {
		m.doubt(r, f)
	}
}

func (m *Machine) doubt(r *rules.Rule, f *wire.Frame) {
	if r == nil || r.Action != rules.Steer {
		return
	}
	st := m.stores[r.Server]
	if st == nil {
		return
	}
	switch op := f.BTH.Opcode; {
	case op == wire.RCCmpSwap:
		m.stats.Unsure++
		m.forgetAround(st, f)
	case op == wire.RCReadRequest:
	case op.Has(wire.HasRETH) || op.Is(wire.OpAtomic):
		m.data(st, f, false)
	}
}

// forgetAround forgets the chains that a compare-and-swap may belong to.
func (m *Machine) forgetAround(st *store, f *wire.Frame) {
	if n := m.nodes.find(id{f.AtomicETH.VA, st.life}); n != nil {
		m.forgetKey(n.key, st.whole.life)
	}
	next, _ := layout.Word(f.AtomicETH.SwapOrAdd).Next()
	if n := m.node(st, next.Handle); n != nil {
		m.forgetKey(n.key, st.whole.life)
	}
}

// data takes note of a WRITE: the node that it makes, or that an entry holds no node any more.
func (m *Machine) data(st *store, f *wire.Frame, sure bool) {
	va, n, rkey := f.RETH.VA, f.RETH.Length, f.RETH.RKey
	if f.BTH.Opcode.Is(wire.OpAtomic) {
		va, n, rkey = f.AtomicETH.VA, 8, f.AtomicETH.RKey
	}
	start, whole, ok := st.slab(va, n, rkey)
	if !ok {
		return
	}
	var header layout.Word
	key, keyed := layout.KeyOf(f.Payload)
	if keyed {
		header = layout.HeaderOf(f.Payload)
	}
	_, more := header.Next()
	if !sure || !whole || !keyed || !header.Valid() || more {
		if m.nodes.remove(id{start, st.life}) {
			m.stats.Overwritten++
		}
		return
	}
	e, evicted := m.nodes.put(id{va, st.life}, nil)
	if evicted {
		m.stats.NodesEvicted++
	}
	m.stats.Nodes++
	*e = node{
		key: key, ref: ref{va, st.life, m.next()}, rkey: rkey, length: n, version: header.EntryVersion(), dead: header.IsTombstone(),
	}
}

// appending is a compare-and-swap that appends a node.
type appending struct {
	node *node
	// version of the node that it goes to, as its client believes, and the life of the memory that holds that.
	version layout.Version
	life    uint32
}

// swap decides about a compare-and-swap.
func (m *Machine) swap(q *request, st *store) pipeline.Verdict {
	f := &q.p.Frame
	e := &f.AtomicETH
	compare, swap := layout.Word(e.Compare), layout.Word(e.SwapOrAdd)
	next, more := swap.Next()
	if compare != layout.Header(compare.EntryVersion()) || !compare.Valid() || !more || swap != layout.Superseded(compare.EntryVersion(), next) {
		m.data(st, f, false)
		return pipeline.Forward()
	}
	m.stats.Appends++
	to := m.nodes.find(id{e.VA, st.life})
	n := m.node(st, next.Handle)
	if n == nil || n.version != next.Version {
		return m.foreign(q, st, to)
	}
	k := m.chainOf(n.key, st.whole.life)
	if k == nil {
		return pipeline.Forward()
	}
	a := appending{node: n, version: compare.EntryVersion(), life: st.life}
	m.onlyOne(q.c, k, n)
	h := m.hot.count(q.c.Now, k.key, k.life, true)
	if !q.rule.Steer.Writes() || !m.steers(q.rule, k.key, h) {
		return m.plain(q, k, &a)
	}
	if k.busy && q.c.Now.Sub(k.at) >= m.cfg.Hold {
		m.stats.Stalled++
		k.busy = false
		m.forget(k)
	}
	if k.busy {
		return m.hold(q, k, &a)
	}
	d := m.decide(q.row, f, st.life, k, n)
	m.launch(q.c, k, d)
	if !m.steerAppend(k, d, a.version) {
		return pipeline.Forward()
	}
	h.steer()
	d.apply(e)
	return note(q.c, q.p, d)
}

// steers reports whether requests for a key are led anywhere: all of them, those of a set, or those that are hot.
func (m *Machine) steers(r *rules.Rule, key uint64, h *warm) bool {
	if r.Hot > 0 {
		return m.hot.among(h, r.Hot)
	}
	return r.HasKey(key)
}

// onlyOne lets what waits to append the same node go to where its client meant it: the client has given up on that copy.
func (m *Machine) onlyOne(c *pipeline.Ctx, k *chain, n *node) {
	for i := k.first; i != none; i = m.wait.list[i].next {
		if w := &m.wait.list[i]; !w.read && w.node.va == n.va && w.node.life == n.life {
			m.release(c, i)
			return
		}
	}
}

// foreign passes an append whose node was not seen, or is on another server. The chain goes on where it is not followed.
func (m *Machine) foreign(q *request, st *store, to *node) pipeline.Verdict {
	m.stats.Foreign++
	f := &q.p.Frame
	m.forgetAround(st, f)
	if to != nil {
		d := q.row.add(f.BTH.PSN, kindAppend)
		d.asked, d.to = f.AtomicETH.VA, to.ref
		d.compare, d.askedCompare, d.key, d.chainLife = f.AtomicETH.Compare, f.AtomicETH.Compare, to.key, st.whole.life
	}
	return pipeline.Forward()
}

// plain passes an append and remembers what is needed to learn from its answer.
func (m *Machine) plain(q *request, k *chain, a *appending) pipeline.Verdict {
	m.decide(q.row, &q.p.Frame, a.life, k, a.node)
	return pipeline.Forward()
}

// decide records an append that goes to where its client meant it: a node of the memory of a life.
func (m *Machine) decide(w *row, f *wire.Frame, life uint32, k *chain, n *node) *decision {
	d := w.add(f.BTH.PSN, kindAppend)
	e := &f.AtomicETH
	d.asked, d.rkey, d.compare, d.askedCompare = e.VA, e.RKey, e.Compare, e.Compare
	d.key, d.chainLife, d.gen, d.seq = k.key, k.life, k.gen, k.seq
	d.node, d.to = n.ref, ref{va: e.VA, life: life}
	d.seen = layout.Word(e.Compare).EntryVersion()
	d.version = d.seen
	switch to := m.nodes.find(id{e.VA, life}); {
	case to == nil:
	case to.key == k.key && to.version == d.seen:
		d.to = to.ref
	default:
		d.stale = true
	}
	return d
}

// launch makes an append the one of its chain that is under way.
func (m *Machine) launch(c *pipeline.Ctx, k *chain, d *decision) {
	d.sent = m.next()
	k.busy, k.sent, k.at, k.going = true, d.sent, c.Now, d.node
}

// steerAppend gives an append another target, if there is a better one.
func (m *Machine) steerAppend(k *chain, d *decision, version layout.Version) bool {
	var t *node
	if to := m.nodeAt(d.to); to != nil {
		t = m.beyond(k, to, d.rkey, version)
	} else if d.stale {
		t = m.instead(k, d, version)
	}
	if t == nil || t.ref == d.node {
		return false
	}
	m.stats.SteeredAppends++
	d.steered, d.to, d.version = true, t.ref, t.version
	d.compare = uint64(layout.Header(t.version))
	if d.version != d.seen {
		m.stats.Translated++
	}
	return true
}

// read decides about a READ of a node.
func (m *Machine) read(q *request, st *store) pipeline.Verdict {
	f := &q.p.Frame
	n := m.nodes.find(id{f.RETH.VA, st.life})
	if n == nil || n.length != f.RETH.Length || n.rkey != f.RETH.RKey {
		return pipeline.Forward()
	}
	m.stats.Reads++
	h := m.hot.count(q.c.Now, n.key, st.whole.life, false)
	if q.s.Span != 1 || !q.rule.Steer.Reads() || !m.steers(q.rule, n.key, h) {
		return pipeline.Forward()
	}
	k := m.chains.find(id{n.key, st.whole.life})
	if k == nil {
		return pipeline.Forward()
	}
	if k.busy && q.c.Now.Sub(k.at) < m.cfg.Hold && (n.gen == k.gen && n.seq != 0 || n.ref == k.going) {
		if v, ok := m.holdRead(q, k, n, st.super.Format); ok {
			return v
		}
	}
	d := m.steerRead(q.row, f, k, n, st.super.Format)
	if d == nil {
		return pipeline.Forward()
	}
	return note(q.c, q.p, d)
}

// steerRead gives a READ of n another target, if there is a better one; nil if not.
func (m *Machine) steerRead(w *row, f *wire.Frame, k *chain, n *node, format layout.Format) *decision {
	t := m.beyond(k, n, f.RETH.RKey, n.version)
	if t == nil {
		return nil
	}
	m.stats.SteeredReads++
	m.hot.find(k.key, k.life).steer()
	d := w.add(f.BTH.PSN, kindRead)
	d.steered, d.asked, d.to = true, f.RETH.VA, t.ref
	d.seen, d.version, d.format = n.version, t.version, format
	if d.version != d.seen {
		m.stats.Translated++
	}
	f.RETH.VA = t.va
	return d
}

// note explains a rewritten packet in captures.
func note(c *pipeline.Ctx, p *pipeline.Parsed, d *decision) pipeline.Verdict {
	return pipeline.Rewrite().With(text(c, p.BTH.Opcode, d))
}

func text(c *pipeline.Ctx, op wire.Opcode, d *decision) string {
	if !c.Observed() {
		return ""
	}
	return rewrite.Note{From: op, To: op, PSN: d.psn, NewPSN: d.psn, Why: hex(d.asked, d.to.va)}.String()
}

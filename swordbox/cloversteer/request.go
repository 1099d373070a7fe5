package cloversteer

import (
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// request is the packet that the machine is handling, with its flow and rule.
type request struct {
	c    *pipeline.Ctx
	s    conntrack.Seen
	flow *flow
	rule *rules.Rule
	p    *pipeline.Parsed
}

// fresh decides what happens to a new request.
func (m *Machine) fresh(q *request) pipeline.Verdict {
	f := &q.p.Frame
	st := m.stores.parts[q.rule.Server]
	switch op := f.BTH.Opcode; {
	case op == wire.RCWriteOnly && f.RETH.Length == superLen && isSuper(f.Payload):
		m.learn(q.rule.Server, f.RETH.VA, f.RETH.RKey, f.Payload)
	case op == wire.RCReadRequest && f.RETH.Length == superLen:
		d := q.flow.add(f.BTH.PSN, kindSuper)
		d.server, d.to.va, d.rkey = q.rule.Server, f.RETH.VA, f.RETH.RKey
	case st == nil, op == wire.RCFlush:
	case op == wire.RCCmpSwap:
		return m.swap(q, st)
	case op == wire.RCReadRequest:
		return m.read(q, st)
	case op.Has(wire.HasRETH) || op.Is(wire.OpAtomic):
		m.data(st, f, true)
	}
	return pipeline.Forward()
}

// appending describes a CAS that appends a node.
type appending struct {
	node *node
	// version is the version that the client expects of the node to which the append goes.
	// incarnation is the incarnation of the memory of that node.
	version     layout.Version
	incarnation uint32
}

// swap decides what happens to a CAS.
func (m *Machine) swap(q *request, st *part) pipeline.Verdict {
	f := &q.p.Frame
	e := &f.AtomicETH
	compare, swap := layout.Word(e.Compare), layout.Word(e.SwapOrAdd)
	version := compare.EntryVersion()
	next, more := swap.Next()
	if compare != layout.Header(version) || !compare.Valid() || !more || swap != layout.Superseded(version, next) {
		m.data(st, f, false)
		return pipeline.Forward()
	}
	m.stats.Appends++
	to := m.chains.nodes.find(id{e.VA, st.incarnation})
	n := m.nodeOf(st, next.Handle)
	if n == nil || n.version != next.Version {
		return m.foreign(q, st, to)
	}
	k := m.chains.chain(id{n.key, st.store.incarnation})
	if k == nil {
		return pipeline.Forward()
	}
	a := appending{node: n, version: version, incarnation: st.incarnation}
	m.onlyOne(q.c, k, n)
	h := m.hot.count(q.c.Now, k.id, true)
	if !q.rule.Steer.Writes() || !m.hot.steers(q.rule, k.n, h) {
		return m.chains.plain(q, k, &a)
	}
	if k.busy && q.c.Now.Sub(k.at) >= m.cfg.Hold {
		m.stats.Stalled++
		k.busy = false
		m.chains.forget(k)
	}
	if k.busy {
		return m.hold(q, k, &a)
	}
	d := m.chains.decide(q.flow, f, st.incarnation, k, n)
	m.chains.launch(q.c.Now, k, d)
	if !m.chains.steer(k, d, a.version) {
		return pipeline.Forward()
	}
	h.steer()
	d.apply(e)
	return note(q.c, q.p, d)
}

// onlyOne sends a waiting append of the node n to the server unchanged. It is called when the
// client has sent another append of n, so the client no longer waits for the first one.
func (m *Machine) onlyOne(c *pipeline.Ctx, k *chain, n *node) {
	for i := k.first; i != none; i = m.wait.list[i].next {
		if w := &m.wait.list[i]; !w.read && w.node.id() == n.id() {
			m.release(c, i)
			return
		}
	}
}

// foreign forwards an append if the switch did not see the appended node. The switch then forgets
// the chain to which the append goes.
func (m *Machine) foreign(q *request, st *part, to *node) pipeline.Verdict {
	m.stats.Foreign++
	f := &q.p.Frame
	m.forgetAround(st, f)
	if to != nil {
		d := q.flow.add(f.BTH.PSN, kindAppend)
		d.asked, d.to = f.AtomicETH.VA, to.ref
		d.compare, d.askedCompare = f.AtomicETH.Compare, f.AtomicETH.Compare
		d.chain = id{to.key, st.store.incarnation}
	}
	return pipeline.Forward()
}

// plain forwards an append unchanged, and records what the switch needs to understand the response.
func (t *chains) plain(q *request, k *chain, a *appending) pipeline.Verdict {
	t.decide(q.flow, &q.p.Frame, a.incarnation, k, a.node)
	return pipeline.Forward()
}

// read decides what happens to a READ of a node.
func (m *Machine) read(q *request, st *part) pipeline.Verdict {
	f := &q.p.Frame
	n := m.chains.nodes.find(id{f.RETH.VA, st.incarnation})
	if n == nil || n.length != f.RETH.Length || n.rkey != f.RETH.RKey {
		return pipeline.Forward()
	}
	m.stats.Reads++
	key := id{n.key, st.store.incarnation}
	h := m.hot.count(q.c.Now, key, false)
	parts := parts{q.s.Span, q.s.Flow.PathMTU.MTU}
	if !parts.areKnown(len(q.flow.ring)) || !q.rule.Steer.Reads() || !m.hot.steers(q.rule, n.key, h) {
		return pipeline.Forward()
	}
	k := m.chains.byKey.find(key)
	if k == nil {
		return pipeline.Forward()
	}
	if k.busy && q.c.Now.Sub(k.at) < m.cfg.Hold && (k.has(n) || n.ref == k.node) {
		if v, ok := m.holdRead(q, k, n, parts, st.super.Format); ok {
			return v
		}
	}
	d := m.steerRead(q.flow, f, k, n, parts, st.super.Format)
	if d == nil {
		return pipeline.Forward()
	}
	return note(q.c, q.p, d)
}

// parts is the number of packets of the response to a READ, and the path MTU in bytes.
type parts struct{ n, mtu int }

// areKnown reports whether the switch may steer a READ whose response has p.n packets. ring is the
// number of decisions that the switch remembers of the flow. The client may ask again for the rest
// of the response, from any of its packets on. So the switch remembers a decision for each packet,
// and a READ may take at most a quarter of the ring. A response of several packets also needs a
// known path MTU.
func (p parts) areKnown(ring int) bool { return p.n == 1 || p.n > 1 && p.n <= ring/4 && p.mtu > 0 }

// steerRead steers a READ of n to the tail of its key. It returns the decision, or nil if the READ
// stays as it is. The switch cannot translate a response of several packets, because a node's
// checksum covers all of them. So it steers such a READ only to a node of the same version.
func (m *Machine) steerRead(fl *flow, f *wire.Frame, k *chain, n *node, p parts, format layout.Format) *decision {
	t := m.chains.beyond(k, n, f.RETH.RKey, n.version)
	if t == nil || p.n > 1 && t.version != n.version {
		return nil
	}
	m.stats.SteeredReads++
	m.hot.find(k.id).steer()
	d := fl.add(f.BTH.PSN, kindRead)
	d.target = target{steered: true, asked: f.RETH.VA, to: t.ref, seen: n.version, version: t.version, format: format}
	if d.version != d.seen {
		m.stats.Translated++
	}
	for i := p.n - 1; i > 0; i-- {
		part := fl.add(f.BTH.PSN.Add(i), kindRead)
		part.target = d.target
		part.asked += uint64(i * p.mtu)
		part.to.va += uint64(i * p.mtu)
	}
	f.RETH.VA = t.va
	return d
}

// note returns the verdict for a changed packet, with a text that explains the change in captures.
func note(c *pipeline.Ctx, p *pipeline.Parsed, d *decision) pipeline.Verdict {
	return pipeline.Rewrite().With(text(c, p.BTH.Opcode, d))
}

// text returns the text of note; "" if no capture runs.
func text(c *pipeline.Ctx, op wire.Opcode, d *decision) string {
	if !c.Observed() {
		return ""
	}
	return transform.Note{From: op, To: op, PSN: d.psn, NewPSN: d.psn, Why: fmt.Sprintf("steered %#x→%#x", d.asked, d.to.va)}.String()
}

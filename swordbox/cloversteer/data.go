package cloversteer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Stray handles a request that matches a rule if the switch does not track its connection. The
// switch forwards the request and will not recognise the response.
func (m *Machine) Stray(r *rules.Rule, f *wire.Frame) {
	if r.Mode == rules.Hardened {
		m.doubt(r, f)
	}
}

// doubt handles a request if the switch does not know whether the server executes it, or will not
// recognise its response. The switch forgets the chains that the request could change.
func (m *Machine) doubt(r *rules.Rule, f *wire.Frame) {
	if r == nil || r.Action != rules.Steer {
		return
	}
	st := m.stores.parts[r.Server]
	if st == nil {
		return
	}
	switch op := f.BTH.Opcode; {
	case op == wire.RCCmpSwap:
		m.stats.Unsure++
		m.forgetAround(st, f)
	case op == wire.RCReadRequest, op == wire.RCFlush:
	case op.Has(wire.HasRETH) || op.Is(wire.OpAtomic):
		m.data(st, f, false)
	}
}

// nodeOf returns the node with handle h, on any server of the store; nil if the switch did not see
// the node.
func (m *Machine) nodeOf(st *part, h layout.Handle) *node {
	k, n, ok := st.place(h)
	if !ok {
		return nil
	}
	if x := m.chains.nodes.find(k); x != nil && int(x.length) == n {
		return x
	}
	return nil
}

// forgetAround forgets the chain of the node at the target of a CAS, and the chain of the node that
// its swap operand names.
func (m *Machine) forgetAround(st *part, f *wire.Frame) {
	if n := m.chains.nodes.find(id{f.AtomicETH.VA, st.incarnation}); n != nil {
		m.chains.forgetKey(id{n.key, st.store.incarnation})
	}
	next, _ := layout.Word(f.AtomicETH.SwapOrAdd).Next()
	if n := m.nodeOf(st, next.Handle); n != nil {
		m.chains.forgetKey(id{n.key, st.store.incarnation})
	}
}

// overwrite makes the switch forget each node of which a request for n bytes at va changes at least
// a part. If keep is true, it does not forget the node that begins at va. A WRITE of no bytes
// counts as a WRITE of one byte, because clients send it to make the switch forget a node. Bytes
// behind the end of st are ignored. The work is bounded by the number of nodes that the switch
// remembers.
func (m *Machine) overwrite(st *part, va uint64, n uint32, keep bool) {
	space := &st.super.Space
	first, _ := space.Place(space.First(st.super.Server, 0))
	begin := st.base + uint64(first.Offset)
	end := va + min(uint64(max(n, 1)), st.length-(va-st.base))
	asked := va
	if va = max(va, begin); va >= end {
		return
	}
	nodes := &m.chains.nodes
	changes := func(at id, x *node) bool {
		return at.incarnation == st.incarnation && at.n < end && at.n+uint64(x.length) > va && (!keep || at.n != asked)
	}
	if (end-va)/layout.MinSlab >= uint64(len(nodes.slots)) {
		m.stats.Overwritten += uint64(nodes.removeAll(changes))
		return
	}
	forget := func(at uint64) {
		k := id{at, st.incarnation}
		if x := nodes.find(k); x != nil && changes(k, x) {
			nodes.remove(k)
			m.stats.Overwritten++
		}
	}
	// Forget first the nodes of any class that begin at va or before it, then those that begin
	// behind it.
	if start, ok := st.slab(va); ok && !space.Shared {
		forget(start)
	}
	for c := range layout.Class(layout.Classes) {
		if space.Shared {
			forget(va - (va-begin)%uint64(c.Size()))
		}
	}
	for at := va - (va-begin)%layout.MinSlab + layout.MinSlab; at < end; at += layout.MinSlab {
		forget(at)
	}
}

// data handles a WRITE or an atomic to the memory of the store. A data WRITE fills a whole entry of
// the pool with a valid node that has no successor. If sure is true, the server will execute the
// request, and the switch then knows this node. Any other request makes the switch forget the nodes
// that it overwrites, and so does a data WRITE without sure. If a request changes the superblock,
// or writes a superblock elsewhere on the server, the switch forgets this server's part of the
// store, because handles may name other nodes afterwards.
func (m *Machine) data(st *part, f *wire.Frame, sure bool) {
	if st.overwrites(f) {
		m.stores.drop(st.server)
		return
	}
	va, n, rkey, _ := transform.Target(f)
	if !st.contains(va, rkey) {
		return
	}
	var header layout.Word
	key, keyed := layout.KeyOf(f.Payload)
	if keyed {
		header = layout.HeaderOf(f.Payload)
	}
	_, more := header.Next()
	isNode := sure && keyed && header.Valid() && !more && st.super.Space.Entry(st.super.Server, int(va-st.base), int(n))
	m.overwrite(st, va, n, isNode)
	if !isNode {
		return
	}
	e, evicted := m.chains.nodes.put(id{va, st.incarnation}, nil)
	if evicted {
		m.stats.NodesEvicted++
	}
	m.stats.Nodes++
	*e = node{
		key: key, ref: ref{va, st.incarnation, m.chains.next()}, rkey: rkey, length: n,
		version: header.EntryVersion(), dead: header.IsTombstone(),
	}
}

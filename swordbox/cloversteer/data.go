package cloversteer

import (
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Stray notes a request under a rule for which conntrack has no flow: it is forwarded, and its
// response is not seen.
func (m *Machine) Stray(r *rules.Rule, f *wire.Frame) {
	if r.Mode == rules.Hardened {
		m.doubt(r, f)
	}
}

// doubt handles a request that the server may or may not execute, or whose response the switch does
// not see: it forgets the chains that the request could change.
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
	case op == wire.RCReadRequest:
	case op.Has(wire.HasRETH) || op.Is(wire.OpAtomic):
		m.data(st, f, false)
	}
}

// nodeOf is the node with a handle, on whichever server; nil if it was not seen.
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

// forgetAround forgets the chains that a CAS may belong to.
func (m *Machine) forgetAround(st *part, f *wire.Frame) {
	if n := m.chains.nodes.find(id{f.AtomicETH.VA, st.incarnation}); n != nil {
		m.chains.forgetKey(id{n.key, st.store.incarnation})
	}
	next, _ := layout.Word(f.AtomicETH.SwapOrAdd).Next()
	if n := m.nodeOf(st, next.Handle); n != nil {
		m.chains.forgetKey(id{n.key, st.store.incarnation})
	}
}

// overwrite forgets the nodes of which a request for n bytes at va changes a part, but for the one
// that begins at va if keep is set.
func (m *Machine) overwrite(st *part, va uint64, n uint32, keep bool) {
	forget := func(at uint64) {
		k := id{at, st.incarnation}
		if x := m.chains.nodes.find(k); x == nil || at+uint64(x.length) <= va || keep && at == va {
			return
		}
		m.chains.nodes.remove(k)
		m.stats.Overwritten++
	}
	space := &st.super.Space
	if !space.Shared {
		if start, ok := st.slab(va); ok {
			forget(start)
		}
		return
	}
	// the nodes of any class that begin at va or before it, then those that begin behind it
	first, _ := space.Place(space.First(st.super.Server, 0))
	begin := st.base + uint64(first.Offset)
	end := va + uint64(n)
	if va = max(va, begin); end < begin {
		return
	}
	for c := range layout.Class(layout.Classes) {
		forget(va - (va-begin)%uint64(c.Size()))
	}
	for at := va - (va-begin)%layout.MinSlab + layout.MinSlab; at < end; at += layout.MinSlab {
		forget(at)
	}
}

// data updates the known nodes for a WRITE or an atomic. A data WRITE, which fills a whole place of
// the pool with a valid node that has no successor, makes its node known. Any other request makes
// the switch forget the nodes that it overwrites, and so does a data WRITE unless sure is set: the
// server will execute the request. A request that changes the superblock, or writes a superblock
// elsewhere on the server, makes the switch forget this server's part of the store, because handles
// may name other nodes afterwards.
func (m *Machine) data(st *part, f *wire.Frame, sure bool) {
	if st.overwrites(f) {
		m.stores.drop(st.server)
		return
	}
	va, n, rkey := f.RETH.VA, f.RETH.Length, f.RETH.RKey
	if f.BTH.Opcode.Is(wire.OpAtomic) {
		va, n, rkey = f.AtomicETH.VA, 8, f.AtomicETH.RKey
	}
	if !st.has(va, rkey) {
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

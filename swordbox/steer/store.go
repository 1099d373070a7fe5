package steer

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// superLen is the length of a superblock.
const superLen = layout.SuperblockLen

// maxStores bounds the memory servers and the stores that are known.
const maxStores = 256

// store is what is known of the part of a store that one memory server holds.
type store struct {
	server netip.Addr
	base   uint64
	rkey   uint32
	super  layout.Superblock
	// life is another number for each time that the memory was formatted or had another place.
	life uint32
	// whole is the store that it is a part of.
	whole *whole
}

// whole is a store: the memory of one or several servers. Chains lead from one to another.
type whole struct {
	// life is another number for each time that one of the parts was formatted or had another place.
	life  uint32
	space layout.Space
	parts [layout.MaxServers]*store
}

// learn takes note of a superblock, which began at va of a server.
func (m *Machine) learn(server netip.Addr, va uint64, rkey uint32, b []byte) {
	var super layout.Superblock
	if super.Parse(b) != nil {
		return
	}
	s := m.stores[server]
	if s != nil && s.base == va && s.rkey == rkey && s.super.Generation == super.Generation && s.super.Space == super.Space &&
		s.super.Store == super.Store && s.super.Server == super.Server {
		return
	}
	if s != nil {
		m.leave(s)
	}
	if super.Space.Servers == 0 || !super.Format.Keyed || s == nil && len(m.stores) >= maxStores {
		delete(m.stores, server)
		m.stats.Unusable++
		return
	}
	m.begin()
	if s == nil {
		s = &store{server: server}
		m.stores[server] = s
	}
	m.lives++
	*s = store{server: server, base: va, rkey: rkey, super: super, life: m.lives}
	m.join(s)
	m.stats.Stores++
}

// join makes a server's memory a part of its store. Memory that does not say to which it belongs, or that two servers claim to be,
// is a store of its own.
func (m *Machine) join(s *store) {
	w := m.wholes[s.super.Store]
	if s.super.Store == 0 || w != nil && (w.space != s.super.Space || w.parts[s.super.Server] != nil) {
		w = nil
	} else if w == nil {
		w = &whole{space: s.super.Space}
		m.wholes[s.super.Store] = w
	}
	if w == nil {
		w = &whole{space: s.super.Space}
	}
	m.lives++
	w.life = m.lives
	w.parts[s.super.Server], s.whole = s, w
}

// leave takes the memory of a server out of its store, whose chains are forgotten.
func (m *Machine) leave(s *store) {
	w := s.whole
	if w.parts[s.super.Server] == s {
		w.parts[s.super.Server] = nil
	}
	m.lives++
	w.life = m.lives
	for _, p := range w.parts {
		if p != nil {
			return
		}
	}
	if m.wholes[s.super.Store] == w {
		delete(m.wholes, s.super.Store)
	}
}

// node finds the node with a handle, on whatever server; nil if it was not seen.
func (m *Machine) node(s *store, h layout.Handle) *node {
	p, ok := s.super.Space.Place(h)
	if !ok {
		return nil
	}
	part := s.whole.parts[p.Server]
	if part == nil {
		return nil
	}
	return m.nodes.find(id{part.base + uint64(p.Offset), part.life})
}

// slab is the entry that a request for n bytes at va touches: whole says that it is exactly that entry.
func (s *store) slab(va uint64, n uint32, rkey uint32) (start uint64, whole, ok bool) {
	if rkey != s.rkey || va < s.base || va-s.base >= uint64(s.super.Space.RegionLen()) {
		return 0, false, false
	}
	off := int(va - s.base)
	if _, class, ok := s.super.Space.Handle(s.super.Server, off); ok {
		return va, class.Size() == int(n), true
	}
	for c := layout.Class(0); c < layout.Classes; c++ { // inside of one: classes are aligned to the smallest only
		for at := off / layout.MinSlab * layout.MinSlab; at >= 0 && off-at < c.Size(); at -= layout.MinSlab {
			if _, k, ok := s.super.Space.Handle(s.super.Server, at); ok && off-at < k.Size() {
				return s.base + uint64(at), false, true
			}
		}
	}
	return 0, false, false
}

package steer

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// superLen is the length of a superblock.
const superLen = layout.SuperblockLen

// store is what is known of the memory of one server.
type store struct {
	base  uint64
	rkey  uint32
	super layout.Superblock
	// life is another number for each time that the memory was formatted or had another place.
	life uint32
}

// learn takes note of a superblock, which began at va of a server.
func (m *Machine) learn(server netip.Addr, va uint64, rkey uint32, b []byte) {
	var super layout.Superblock
	if super.Parse(b) != nil {
		return
	}
	s := m.stores[server]
	if s != nil && s.base == va && s.rkey == rkey && s.super.Generation == super.Generation && s.super.Space == super.Space {
		return
	}
	if super.Space.Servers == 0 || !super.Format.Keyed {
		delete(m.stores, server)
		m.stats.Unusable++
		return
	}
	m.begin()
	if s == nil {
		s = &store{}
		m.stores[server] = s
	}
	m.lives++
	*s = store{base: va, rkey: rkey, super: super, life: m.lives}
	m.stats.Stores++
}

// address is where a node of this server is; ok is false if it is on another one.
func (s *store) address(h layout.Handle) (va uint64, ok bool) {
	p, ok := s.super.Space.Place(h)
	return s.base + uint64(p.Offset), ok && p.Server == s.super.Server
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

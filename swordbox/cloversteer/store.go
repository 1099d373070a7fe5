package cloversteer

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// superLen is the length in bytes of a superblock, which describes the store on a server.
const superLen = layout.SuperblockLen

// maxParts bounds the memory servers that the switch knows.
const maxParts = 256

// part is the part of a store on one memory server.
type part struct {
	server netip.Addr
	base   uint64 // address of the superblock
	rkey   uint32
	super  layout.Superblock
	length uint64 // length of the part's memory, in bytes
	// incarnation changes each time that the part is formatted or moves to another address.
	incarnation uint32
	store       *store
}

// store is a store on one or several memory servers. A chain may continue on another server.
type store struct {
	// incarnation changes each time that a part is formatted, moves to another address, or is
	// dropped.
	incarnation uint32
	space       layout.Space
	parts       [layout.MaxServers]*part
}

// stores holds the stores that the switch knows.
type stores struct {
	parts        map[netip.Addr]*part // key is the address by which rules name the server
	byID         map[uint32]*store    // key is the store ID in the superblocks
	incarnations uint32               // the last incarnation that next has returned
	stats        *Stats
}

func newStores(stats *Stats) stores {
	return stores{parts: make(map[netip.Addr]*part), byID: make(map[uint32]*store), stats: stats}
}

// next returns an incarnation that it has not returned before.
func (t *stores) next() uint32 {
	t.incarnations++
	return t.incarnations
}

// learn takes note of a superblock of Clover that is at va of a server; b has its bytes. If these
// are no superblock, learn forgets the one that it knew there.
func (t *stores) learn(server netip.Addr, va uint64, rkey uint32, b []byte) {
	var super layout.Superblock
	s := t.parts[server]
	if super.Parse(b) != nil {
		if s != nil && s.base == va && s.rkey == rkey {
			t.drop(server)
		}
		return
	}
	if s != nil && s.base == va && s.rkey == rkey && s.super.Generation == super.Generation && s.super.Space == super.Space &&
		s.super.Store == super.Store && s.super.Server == super.Server {
		return
	}
	if s != nil {
		t.leave(s)
	}
	if super.Space.Servers == 0 || super.Space.Backups > 0 || !super.Format.Keyed || s == nil && len(t.parts) >= maxParts {
		delete(t.parts, server)
		t.stats.Unusable++
		return
	}
	if s == nil {
		s = &part{server: server}
		t.parts[server] = s
	}
	length := uint64(super.Space.RegionLen())
	*s = part{server: server, base: va, rkey: rkey, super: super, length: length, incarnation: t.next()}
	t.join(s)
	t.stats.Stores++
}

// join adds a part to its store. The part becomes a store of its own if it has no store ID, if its
// superblock describes another layout (Space) than that of the store, or if another server already
// has its place in the store.
func (t *stores) join(s *part) {
	w := t.byID[s.super.Store]
	if s.super.Store == 0 || w != nil && (w.space != s.super.Space || w.parts[s.super.Server] != nil) {
		w = &store{space: s.super.Space}
	} else if w == nil {
		w = &store{space: s.super.Space}
		t.byID[s.super.Store] = w
	}
	w.incarnation = t.next()
	w.parts[s.super.Server], s.store = s, w
}

// leave removes a part from its store. The incarnation of the store changes, so the switch forgets
// its chains.
func (t *stores) leave(s *part) {
	w := s.store
	if w.parts[s.super.Server] == s {
		w.parts[s.super.Server] = nil
	}
	w.incarnation = t.next()
	if w.parts == ([layout.MaxServers]*part{}) && t.byID[s.super.Store] == w {
		delete(t.byID, s.super.Store)
	}
}

// drop forgets the part of the store on a server. It is called when the memory no longer belongs to
// the store, when it may have another superblock, or when requests that the machine does not see
// may change it. Handles into this part name nothing until the switch sees a superblock there
// again.
func (t *stores) drop(server netip.Addr) {
	if s := t.parts[server]; s != nil {
		t.leave(s)
		delete(t.parts, server)
	}
}

// shown reports whether the rules of a server make the machine see all requests for the memory of
// the part: the first rule that matches some of them must match all of them, and be a hardened rule
// of action steer.
func (s *part) shown(list []*rules.Rule) bool {
	for _, r := range list {
		if r.RKey != 0 && r.RKey != s.rkey || !r.Covers(s.base, int(s.length)) {
			continue
		}
		whole := r.From == 0 && r.To == 0 || r.From <= s.base && r.To >= s.base+s.length
		return whole && r.Server == s.server && Kind.Serves(r)
	}
	return false
}

// overwrites reports whether a request changes the superblock of the part (a store's memory on one
// server), or writes a superblock elsewhere on this server.
func (s *part) overwrites(f *wire.Frame) bool {
	va, n, _, _ := transform.Target(f)
	if f.BTH.Opcode == wire.RCWriteOnly && n == superLen && isSuper(f.Payload) {
		return true
	}
	return n != 0 && va < s.base+superLen && va+uint64(n) > s.base
}

func isSuper(b []byte) bool { return len(b) == superLen && new(layout.Superblock).Parse(b) == nil }

// place returns the id and the length of the node with handle h, on any server of the store. ok is
// false if the switch does not know the server of the node.
func (s *part) place(h layout.Handle) (k id, n int, ok bool) {
	p, ok := s.super.Space.Place(h)
	if !ok {
		return id{}, 0, false
	}
	on := s.store.parts[p.Server]
	if on == nil {
		return id{}, 0, false
	}
	return id{on.base + uint64(p.Offset), on.incarnation}, p.Len, true
}

// contains reports whether a request begins in this part of the store. It checks only the first
// address and the key, not the length.
func (s *part) contains(va uint64, rkey uint32) bool {
	return rkey == s.rkey && va >= s.base && va-s.base < s.length
}

// slab returns the start of the entry that contains the address va, in a space whose entries have
// fixed classes. ok is false if there is no such entry.
func (s *part) slab(va uint64) (start uint64, ok bool) {
	off := int(va - s.base)
	if _, _, ok := s.super.Space.Handle(s.super.Server, off); ok {
		return va, true
	}
	// The address is inside an entry, and entries are aligned only to the smallest class.
	for c := layout.Class(0); c < layout.Classes; c++ {
		for at := off / layout.MinSlab * layout.MinSlab; at >= 0 && off-at < c.Size(); at -= layout.MinSlab {
			if _, k, ok := s.super.Space.Handle(s.super.Server, at); ok && off-at < k.Size() {
				return s.base + uint64(at), true
			}
		}
	}
	return 0, false
}

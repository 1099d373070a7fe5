package cloversteer

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// The switch forgets exactly the nodes of which a request changes a byte, however long the request
// is, and none that a data WRITE fills.
func TestRequestsForgetWhatTheyChange(t *testing.T) {
	fixed := layout.Space{Servers: 1, Entries: layout.Counts{0: 6, 1: 3, 3: 2}, Shortcuts: 4}
	shared := layout.Space{Servers: 1, Shortcuts: 4}
	shared.ShareIn(4*1024, 3)
	const base, rkey = 0x1000, 5
	for name, space := range map[string]layout.Space{"fixed": fixed, "shared": shared} {
		for _, nodes := range []int{16, 256} { // fewer than entries, and more
			rnd := rand.New(rand.NewPCG(3, uint64(nodes)))
			for range 400 {
				m := New(Config{Nodes: nodes})
				m.learn(host(1), base, rkey, superOf(0, func(s *layout.Superblock) { s.Space = space }))
				st := m.stores.parts[host(1)]
				begin, _ := space.Place(1)
				from := base + uint64(begin.Offset)
				for range 12 {
					p, _ := space.Place(layout.Handle(1 + rnd.IntN(space.Entries.Total())))
					x, _ := m.chains.nodes.put(id{base + uint64(p.Offset), st.incarnation}, nil)
					x.length = uint32(p.Len)
				}
				other, _ := m.chains.nodes.put(id{from, st.incarnation + 1}, nil)
				other.length = 1024
				va := from + uint64(rnd.IntN(int(base+st.length-from)))
				n := uint32(1 + rnd.IntN(1<<rnd.IntN(13)))
				switch rnd.IntN(8) {
				case 0:
					va -= uint64(rnd.IntN(begin.Offset))
				case 1:
					n = ^uint32(0)
				case 2:
					va = from
				case 3:
					n = 0 // touches the node
				}
				keep := rnd.IntN(2) == 0
				type entry struct {
					at   id
					gone bool
				}
				var all []entry
				gone := uint64(0)
				for _, s := range m.chains.nodes.slots {
					if s.used == 0 {
						continue
					}
					end := s.id.n + uint64(s.v.length)
					e := entry{s.id, s.id.incarnation == st.incarnation && s.id.n < va+uint64(max(n, 1)) && end > va && (!keep || s.id.n != va)}
					if all = append(all, e); e.gone {
						gone++
					}
				}
				m.overwrite(st, va, n, keep)
				for _, e := range all {
					if (m.chains.nodes.find(e.at) == nil) != e.gone {
						t.Fatalf("%s, %d nodes: %d bytes at %#x, keep %v: the node at %#x is gone: %v", name, nodes, n, va, keep, e.at.n, !e.gone)
					}
				}
				if m.stats.Overwritten != gone {
					t.Fatalf("%s: %d nodes are counted, %d are gone", name, m.stats.Overwritten, gone)
				}
			}
		}
	}
}

// A long request ends before the node behind it, and counts the nodes that it changes.
func TestRequestThatEndsBeforeANode(t *testing.T) {
	const base = 0x1000
	m := New(Config{Nodes: 8})
	m.learn(host(1), base, 5, superOf(0, func(s *layout.Superblock) {
		s.Space = layout.Space{Servers: 1, Entries: layout.Counts{0: 6}, Shortcuts: 4}
	}))
	st := m.stores.parts[host(1)]
	at := func(h layout.Handle) id {
		p, _ := st.super.Space.Place(h)
		return id{base + uint64(p.Offset), st.incarnation}
	}
	for h := layout.Handle(1); h <= 3; h++ {
		x, _ := m.chains.nodes.put(at(h), nil)
		x.length = 128
	}
	m.overwrite(st, at(1).n, uint32(at(3).n-at(1).n), false) // more places than the table has entries
	if m.chains.nodes.find(at(1)) != nil || m.chains.nodes.find(at(2)) != nil || m.chains.nodes.find(at(3)) == nil || m.stats.Overwritten != 2 {
		t.Errorf("%d nodes are counted, want 2", m.stats.Overwritten)
	}
}

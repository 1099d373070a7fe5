package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A merged report has parts of two clients. The server leaves out the part of one of them that has
// been fenced meanwhile, that it does not know, or whose part is a late copy; and the nodes that
// belong to another client by then. The part of the other client counts in any case. No part shows
// that its client lives: another connection has brought it, perhaps late.
func TestMergedReports(t *testing.T) {
	const one, two, heard = 1<<16 | 5, 1<<16 | 6, clock.Time(7)
	at := func(h layout.Handle) layout.Location { return layout.Location{Handle: h, Version: 1} }
	for _, c := range []struct {
		name   string
		change func(s *Server, cl *client)
		counts bool
	}{
		{"both clients live", func(*Server, *client) {}, true},
		{"a client that has said goodbye", func(_ *Server, cl *client) { cl.gone = true }, true},
		{"its nodes are taken back", func(_ *Server, cl *client) { cl.ended = true }, false},
		{"its memory was lost", func(_ *Server, cl *client) { cl.stale = true }, false},
		{"its number has ended", func(s *Server, cl *client) { delete(s.pool.clients, cl.id) }, false},
		{"it says hello again", func(s *Server, cl *client) {
			delete(s.pool.clients, cl.id)
			s.pool.clients[cl.id+10] = &client{id: cl.id + 10, former: cl.id}
		}, false},
		{"a copy of its last part", func(_ *Server, cl *client) { cl.reported = 3 }, false},
		{"a copy of an earlier part", func(_ *Server, cl *client) { cl.reported = 4 }, false},
		{"another client holds the node", func(s *Server, _ *client) { s.pool.nodes.held.put(2, held{client: two, version: 1}) }, false},
		{"the node is held in a later version", func(s *Server, _ *client) { s.pool.nodes.held.put(2, held{client: one, version: 2}) }, false},
	} {
		s := newServer()
		s.mem.space = layout.Space{Servers: 1, Entries: layout.Counts{0: 16}, Shortcuts: 4}
		s.chains.keys = map[uint64]*entry{1: {key: 1, at: at(1), since: 9, recorded: true, mirrored: true}}
		s.pool.nodes.held = heldOf(map[layout.Handle]held{2: {client: one, version: 1}, 3: {client: two, version: 1}})
		s.pool.clients = map[uint32]*client{one: {id: one, heard: heard, reported: 2}, two: {id: two, heard: heard}}
		c.change(s, s.pool.clients[one])
		r := rpc.Request{Op: rpc.OpReports, Parts: []rpc.Part{
			{Client: one, Seq: 3, Records: []rpc.Record{{Key: 1, New: at(2)}}},
			{Client: two, Seq: 1, Records: []rpc.Record{{Key: 1, New: at(3)}}},
		}}
		gone := s.pool.clients[one] != nil && s.pool.clients[one].gone
		s.gather(&r)
		if got := s.pool.nodes.held.of(2).entry != nil; got != c.counts {
			t.Errorf("%s: its report counts: %v", c.name, got)
		}
		if s.pool.nodes.held.of(3).entry == nil || s.pool.clients[two].reported != 1 {
			t.Errorf("%s: the other client's report does not count", c.name)
		}
		if cl := s.pool.clients[one]; cl != nil && (cl.heard != heard || cl.gone != gone) {
			t.Errorf("%s: the server has heard of the client at %v; it has gone: %v", c.name, cl.heard, cl.gone)
		}
	}
}

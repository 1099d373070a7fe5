package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// still is a runtime whose time stands still.
type still struct{ verbs.Runtime }

func (still) Now() clock.Time { return 0 }

// lossy is a server with two memory servers of four nodes each, of which the first has lost its memory, and that is known and not
// worked on yet; and a client that holds all nodes.
func lossy() (*Server, *client) {
	s := &Server{
		rt: still{}, format: layout.Sound, space: layout.Space{Servers: 2, Shortcuts: 4, Entries: layout.Counts{4}},
		keys: make(map[uint64]*entry), memory: make([]memory, 2), slots: []uint32{0, 2}, orphansAt: clock.Never,
	}
	s.memory[0].blank = true
	s.nodes.held = make(map[layout.Handle]held)
	s.walk.successors = make(map[layout.Location]layout.Location)
	cl := &client{id: 7}
	for i := range s.memory {
		for k := range 4 {
			s.nodes.held[s.space.First(i, 0)+layout.Handle(k)] = held{client: cl.id, version: 1}
		}
	}
	return s, cl
}

// An INSERT finds out that the memory of the key, and of its own node, is lost: it must not succeed. The key would be lost twice,
// and somebody may have been told of the first loss.
func TestOpenWithALostNode(t *testing.T) {
	s, cl := lossy()
	s.keys[1] = &entry{key: 1, at: layout.Location{Handle: s.space.First(0, 0) + 3, Version: 1}, recorded: true, slot: 4}
	r := rpc.Request{Op: rpc.OpOpen, Key: 1, At: layout.Location{Handle: s.space.First(0, 0), Version: 1}}
	var a rpc.Answer
	s.openKey(cl, &r, &a)
	if e := s.keys[1]; a.Status != rpc.Busy || !e.lost || e.opened == r.At || len(s.slots) != 2 {
		t.Errorf("%v, and the key is %+v", a.Status, e)
	}
}

// A client that asks for a node of its own is told when that has been met in a chain, whatever became of the key since.
func TestQueryForANode(t *testing.T) {
	s, cl := lossy()
	own := layout.Location{Handle: s.space.First(1, 0), Version: 1}
	other := layout.Location{Handle: s.space.First(1, 0) + 1, Version: 1}
	ask := func(at layout.Location) rpc.Answer {
		var a rpc.Answer
		s.query(cl, &rpc.Request{Op: rpc.OpQuery, Key: 1, At: at}, &a)
		return a
	}
	if a := ask(own); a.Status != rpc.NotFound {
		t.Errorf("a node that nobody has met, no key: %v", a.Status)
	}
	s.keys[1] = &entry{key: 1, at: other, recorded: true}
	s.linked(other)
	if a := ask(own); a.Status != rpc.OK || a.N != 1 || a.Locations[0] != other {
		t.Errorf("a node that nobody has met: %+v", a)
	}
	if a := ask(layout.Location{}); a.Status != rpc.OK {
		t.Errorf("no node: %v", a.Status)
	}
	s.linked(own)
	if a := ask(own); a.Status != rpc.Done {
		t.Errorf("a node that was met: %v", a.Status)
	}
	delete(s.keys, 1)
	if a := ask(own); a.Status != rpc.Done {
		t.Errorf("a node that was met, and the key has gone: %v", a.Status)
	}
}

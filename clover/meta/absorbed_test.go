package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A reported node that is not in its chain is freed when the chain has passed the node's successor,
// or was followed to its end. Before that it is not freed, because the chain may still lead to it.
func TestAbsorbedNodesAreFreed(t *testing.T) {
	at := func(h layout.Handle) layout.Location { return layout.Location{Handle: h, Version: 1} }
	for _, c := range []struct {
		name string
		// next is the successor of node 2, as its header shows it. passed are the nodes that the
		// server has reached in the chain; ended says that it has reached the end.
		next   layout.Handle
		passed []layout.Handle
		ended  bool
		free   bool
	}{
		{"its header was not read", 0, []layout.Handle{3}, false, false},
		{"the chain may yet reach it", 3, nil, false, false},
		{"the chain has left it out", 3, []layout.Handle{3}, false, true},
		{"the chain ends elsewhere", 0, nil, true, true},
		{"the chain has reached it", 3, []layout.Handle{2, 3}, true, false},
	} {
		s := new(Server)
		s.space = layout.Space{Servers: 1, Entries: layout.Counts{0: 16}, Shortcuts: 4}
		e := &entry{key: 1, at: at(1), recorded: true, mirrored: true}
		s.keys = map[uint64]*entry{1: e}
		s.nodes.held = map[layout.Handle]held{2: {client: 1, version: 1}, 3: {client: 2, version: 1}}
		s.walk.successors = make(map[layout.Location]layout.Location)
		s.collect(1, []rpc.Record{{Key: 1, New: at(2)}})
		if c.next != 0 {
			s.walk.successors[at(2)] = at(c.next)
		}
		for _, h := range c.passed {
			s.linked(at(h))
		}
		freeAbsorbed(&s.chains, e, c.ended)
		l, free := s.nodes.free[0].Pop(anywhere)
		if free != c.free || free && (l != layout.Location{Handle: 2, Version: 2}) {
			t.Errorf("%s: node %v is free: %v, want %v", c.name, l, free, c.free)
		}
		if _, held := s.nodes.held[2]; free && (held || e.ahead != 0 || len(e.reported) != 0) {
			t.Errorf("%s: held %v, %d ahead, %d reported", c.name, held, e.ahead, len(e.reported))
		}
	}
}

// The chain has passed the successor of a node when no client holds it in that version any more.
func TestSuccessorThatWasGivenAgain(t *testing.T) {
	for name, c := range map[string]struct {
		now  held
		none bool
		want bool
	}{
		"held":        {now: held{client: 7, version: 1}},
		"given again": {now: held{client: 7, version: 2}, want: true},
		"not held":    {none: true, want: true},
	} {
		s, _ := lossy()
		l, next := node(s, 1, 0, 1), node(s, 1, 1, 1)
		s.walk.successors[l] = next
		if s.nodes.held[next.Handle] = c.now; c.none {
			delete(s.nodes.held, next.Handle)
		}
		if got := leftOut(&s.chains, l); got != c.want {
			t.Errorf("%s: the node is left out: %v", name, got)
		}
	}
}

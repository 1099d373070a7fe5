package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// An append has absorbed another one, and the key is deleted before the client reports that: the node
// is free, because no chain leads to it.
func TestAbsorbedNodeOfADeletedKeyIsFreed(t *testing.T) {
	at := func(h layout.Handle) layout.Location { return layout.Location{Handle: h, Version: 1} }
	s := newServer()
	s.mem.space = layout.Space{Servers: 1, Entries: layout.Counts{0: 16}, Shortcuts: 4}
	e := &entry{key: 1, at: at(1), recorded: true, mirrored: true}
	s.chains.keys = map[uint64]*entry{1: e}
	s.pool.nodes.held = heldOf(map[layout.Handle]held{2: {client: 1, version: 1}})
	s.chains.forget(e) // the key was deleted
	s.chains.collect(1, []rpc.Record{{Key: 1, New: at(2)}})
	if h, ok := s.pool.nodes.held.at(2); ok {
		t.Errorf("node 2 stays held %+v, due %d, behind %d, free %d", h, len(s.chains.tidy.due), len(s.mem.walk.behind), s.pool.nodes.free[0].Len(anywhere))
	}
}

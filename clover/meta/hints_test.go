package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// Reports beyond maxHints are left to catchUp, which follows the chains that are behind.
func TestReportsAreBounded(t *testing.T) {
	s := new(Server)
	e := &entry{key: 1, recorded: true, mirrored: true}
	s.keys = map[uint64]*entry{1: e}
	s.nodes.held = make(map[layout.Handle]held)
	report := func(i int) {
		l := layout.Location{Handle: layout.Handle(i + 1), Version: 1}
		s.nodes.held[l.Handle] = held{version: l.Version}
		s.collect(0, []rpc.Record{{Key: 1, New: l}})
	}
	for i := range maxHints {
		report(i)
	}
	if len(s.walk.hints) != maxHints || len(s.walk.behind) != 0 {
		t.Fatalf("%d reports wait, %d entries are behind", len(s.walk.hints), len(s.walk.behind))
	}
	report(maxHints)
	if len(s.walk.hints) != maxHints || len(s.walk.behind) != 1 || e.ahead != maxHints+1 {
		t.Errorf("%d reports wait, %d entries are behind, %d nodes ahead", len(s.walk.hints), len(s.walk.behind), e.ahead)
	}
}

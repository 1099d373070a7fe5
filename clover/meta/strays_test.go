package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A stray is a node that is in no table. Nodes that are the newest one of a key, that a chain has
// passed, that are held, free or worn are none.
func TestStraysAreInNoTable(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 6)
		e := opened(t, s, cl, 1, n[0])
		e.passed = append(e.passed, n[1])
		s.pool.nodes.worn = append(s.pool.nodes.worn, worn{handle: n[2].Handle})
		for _, l := range n[:5] {
			s.pool.nodes.held.drop(l.Handle)
		}
		s.pool.release(n[3])
		if err := s.findStrays(); err != nil {
			t.Error(err)
		}
		for i := range n {
			got, ok := s.pool.nodes.held.at(n[i].Handle)
			if want := i >= 4; ok != want {
				t.Errorf("node %d is held: %v, want %v", i, ok, want)
			}
			if i == 4 && got.client != orphan || i == 5 && got.client != cl.id {
				t.Errorf("node %d is held by %d", i, got.client)
			}
		}
	})
}

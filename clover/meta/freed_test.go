package meta

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client that asks for nodes gets those that a chain has passed, also if only the newest one was
// reported; no segment is taken for them, and no sweep is needed.
func TestNodesOfReportedChainsComeFirst(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 4)
		e := opened(t, s, cl, 1, n[0])
		for i := range 3 {
			if err := errors.Join(put(s, n[i], layout.Superseded(n[i].Version, n[i+1]), 1), put(s, n[i+1], layout.Header(n[i+1].Version), 1)); err != nil {
				t.Error(err)
			}
		}
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, Heard: s.pool.nodes.held.of(n[3].Handle).given, New: n[3]}})
		s.chains.advance(false)
		if e.at == n[3] {
			t.Error("the chain was followed already: the test does not test much")
		}
		s.pool.nodes.free[0].Remove(func(layout.Location) bool { return true })
		unused := s.pool.segments.Unused(1)
		var a rpc.Answer
		s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 2, Tombstone: true}, &a)
		again := func(l layout.Location) bool { return l.Handle == a.Locations[0].Handle }
		if a.Status != rpc.OK || a.N != 1 || !slices.ContainsFunc(n[:3], again) || e.at != n[3] {
			t.Errorf("%v, %d nodes, %v; want one of %v again; the chain is followed to %v", a.Status, a.N, a.Locations[0], n[:3], e.at)
		}
		if now := s.pool.segments.Unused(1); now != unused || unused == 0 {
			t.Errorf("%d segments without a class, before %d", now, unused)
		}
	})
}

// A client that asks for nodes gets those of chains whose reports were not followed yet, before a
// segment is taken.
func TestReportsAreFollowedForARequest(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		e := opened(t, s, cl, 1, n[0])
		if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1), put(s, n[1], layout.Header(n[1].Version), 1)); err != nil {
			t.Error(err)
		}
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, Heard: s.pool.nodes.held.of(n[1].Handle).given, New: n[1]}})
		s.pool.nodes.free[0].Remove(func(layout.Location) bool { return true })
		unused := s.pool.segments.Unused(1)
		var a rpc.Answer
		s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 2, Tombstone: true}, &a)
		if a.N != 1 || a.Locations[0].Handle != n[0].Handle || e.at != n[1] || s.pool.segments.Unused(1) != unused {
			t.Errorf("%v, %d nodes, %v; want %v again; %d segments taken", a.Status, a.N, a.Locations[0], n[0], unused-s.pool.segments.Unused(1))
		}
	})
}

// A client that asks for nodes also gets those of a chain that is behind and has moved since.
func TestChainsBehindAreFollowedForARequest(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		e := opened(t, s, cl, 1, n[0])
		if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1), put(s, n[1], layout.Header(n[1].Version), 1)); err != nil {
			t.Error(err)
		}
		e.reported = []reported{{at: n[1]}}
		s.chains.note(e)
		s.pool.nodes.free[0].Remove(func(layout.Location) bool { return true })
		unused := s.pool.segments.Unused(1)
		var a rpc.Answer
		s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 2, Tombstone: true}, &a)
		if a.N != 1 || a.Locations[0].Handle != n[0].Handle || s.pool.segments.Unused(1) != unused {
			t.Errorf("%v, %d nodes, %v; want %v again; %d segments taken", a.Status, a.N, a.Locations[0], n[0], unused-s.pool.segments.Unused(1))
		}
	})
}

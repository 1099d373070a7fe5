package meta

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client raises the version of a node (layout.Version.Pace), links the node, and dies before it has
// reported that. The node is not given out again with the version that it had in the chain, or with a
// lower one, whether nodes have keys or not.
func TestRaisedVersionsOfADeadClient(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		t.Run(fmt.Sprint("keys ", keyed), func(t *testing.T) {
			withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
				cl, n := holder(t, s, 1, 3)
				s.pool.clients[8] = &client{id: 8, heard: s.mem.rt.Now(), epoch: s.pool.epoch}
				e := opened(t, s, cl, 1, n[0])
				next := s.pool.give(8, 0, 1, 1, 0, nil)[0]
				s.mem.format.Keyed = keyed
				raised := layout.Location{Handle: n[1].Handle, Version: n[1].Version + 10}
				next.Version += 10
				if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, raised), 1), put(s, raised, layout.Superseded(raised.Version, next), 1),
					put(s, next, layout.Header(next.Version), 1)); err != nil {
					t.Error(err)
				}
				s.chains.collect(8, []rpc.Record{{Key: 1, Heard: s.pool.clock, New: next}})
				if s.chains.advance(true); e.at != next || !s.recoverClient(7, s.pool.heldBy(7)[7]) {
					t.Errorf("the chain is known up to %v", e.at)
				}
				s.pool.nodes.free[0].All(func(l layout.Location) {
					if l.Handle == raised.Handle && l.Version <= raised.Version {
						t.Errorf("%v is free, and was in the chain as %v", l, raised)
					}
				})
			})
		})
	}
}

// A report of an append that the client made before it got the node again changes nothing: the node is
// the newest one of another key by then.
func TestReportsOfAnEarlierUse(t *testing.T) {
	s, cl := lossy()
	s.pool.clock = 20
	l := layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}
	for _, c := range []struct {
		heard uint64
		taken bool
	}{{19, false}, {20, true}, {25, true}} {
		e := &entry{key: 1, recorded: true, mirrored: true, since: 30}
		s.chains.keys[1] = e
		s.pool.nodes.held.put(l.Handle, held{client: cl.id, version: l.Version, given: 20})
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, Heard: c.heard, New: layout.Location{Handle: l.Handle, Version: 254}}})
		if h := s.pool.nodes.held.of(l.Handle); (h.entry == e) != c.taken || (len(e.reported) == 1) != c.taken {
			t.Errorf("heard %d: %+v, %d reported", c.heard, h, len(e.reported))
		}
	}
}

// The list of entries that are due does not grow while it is never empty.
func TestDueEntriesAreForgotten(t *testing.T) {
	var d tidier
	for range lanes + 1 {
		d.add(&entry{})
	}
	for range 2000 {
		for range lanes {
			d.add(&entry{})
		}
		if n := len(d.take(lanes)); n != lanes {
			t.Fatalf("%d entries", n)
		}
	}
	if n := len(d.due); n-d.done != lanes+1 || n > 4*lanes {
		t.Errorf("%d entries wait, the list has %d", n-d.done, n)
	}
}

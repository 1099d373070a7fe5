package meta

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	calls "github.com/rdmalab/rdmalab/store/rpc"
	"github.com/rdmalab/rdmalab/store/slab"
)

// All nodes of a new store are free in version 1, class by class, in turn from all servers.
func TestNodesOfANewStore(t *testing.T) {
	s, _ := lossy()
	s.pool.nodes.held = heldNodes{}
	s.mem.space.Entries = layout.Counts{0: 2, 3: 2}
	s.pool.freeAll()
	for _, c := range []layout.Class{0, 3} {
		for n := range 2 {
			for i := range 2 {
				want := layout.Location{Handle: s.mem.space.First(i, c) + layout.Handle(n), Version: 1}
				if l, _ := s.pool.nodes.free[c].Pop(anywhere); l != want {
					t.Errorf("class %d: %v, want %v", c, l, want)
				}
			}
		}
		if left := s.pool.nodes.free[c].Len(anywhere); left != 0 {
			t.Errorf("class %d: %d more nodes", c, left)
		}
	}
	if l := (layout.Location{Handle: 1 << 20, Version: 1}); s.pool.onServer(l, 0) {
		t.Error("a node that is none is on a server")
	} else {
		s.pool.release(l)
	}
	if n := s.pool.nodes.free[0].Len(anywhere); n != 0 {
		t.Errorf("%d nodes are free", n)
	}
}

// A node with its last version is worn, in the present epoch, and not free.
func TestNodeWithItsLastVersion(t *testing.T) {
	s, _ := lossy()
	last := layout.Version(1)
	for next, ok := last.Next(); ok; next, ok = last.Next() {
		last = next
	}
	s.pool.epoch = 6
	l := node(s, 1, 0, last)
	if s.pool.retire(l); !slices.Equal(s.pool.nodes.worn, []worn{{l.Handle, 6}}) || s.pool.nodes.free[0].Len(anywhere) != 0 {
		t.Errorf("worn %v, %d free", s.pool.nodes.worn, s.pool.nodes.free[0].Len(anywhere))
	}
	f := free{front: 8}
	for _, c := range []struct{ v, want layout.Version }{{7, 8}, {8, 8}, {9, 9}} {
		if got := f.pace(c.v); got != c.want {
			t.Errorf("version %d is used as %d, want %d", c.v, got, c.want)
		}
	}
}

// The orphan's nodes of a whole store become free in turn from all servers. A fence that is over
// does not delay that.
func TestAllNodesOfTheOrphan(t *testing.T) {
	s, _ := lossy()
	s.pool.nodes.held = heldNodes{}
	now := clock.Time(10)
	s.mem.rt, s.pool.clients, s.pool.orphans, s.pool.void = ticking{now: &now}, map[uint32]*client{}, true, false
	s.pool.orphansAfter = s.pool.fences.Add(3)
	s.pool.fences.Leave([]bool{true, true})
	for i := range 2 {
		for n := range 4 {
			s.pool.nodes.held.put(node(s, i, n, 1).Handle, held{client: orphan, version: 4})
		}
	}
	s.recoverOrphans(now)
	for n := range 4 {
		for i := range 2 {
			if l, _ := s.pool.nodes.free[0].Pop(anywhere); l != node(s, i, n, 6) {
				t.Errorf("%v, want %v", l, node(s, i, n, 6))
			}
		}
	}
	if s.pool.orphans || s.pool.orphansAfter != nil {
		t.Error("the fence that is over counts")
	}
}

// A reported node of a key that does not exist is free, unless its memory was lost.
func TestReportOfAKeyThatHasGone(t *testing.T) {
	for _, void := range []bool{false, true} {
		s, cl := lossy()
		l := node(s, 1, 0, 1)
		s.pool.nodes.held.put(l.Handle, held{client: cl.id, version: 1, void: void})
		s.chains.collect(cl.id, []rpc.Record{{Key: 9, New: l}})
		if isFree(s, l.Handle) == void || s.pool.heldAs(cl.id, l) != void || len(s.chains.tidy.due) != 0 {
			t.Errorf("void %v: free %v, held %v, %d due", void, isFree(s, l.Handle), s.pool.heldAs(cl.id, l), len(s.chains.tidy.due))
		}
	}
}

// A reported node becomes the newest known one of its key, but not of a lost or a deleted key, and not a
// tombstone, a node in lost memory, or one that may come before the known one.
func TestNodesThatAreNotAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		e       entry
		rec     rpc.Record
		void    bool
		adopted bool
	}{
		"as it is":      {e: entry{since: 5}, rec: rpc.Record{Heard: 5}, adopted: true},
		"a lost key":    {e: entry{lost: true}},
		"a deleted key": {e: entry{dead: true}},
		"a tombstone":   {rec: rpc.Record{Deleted: true}},
		"lost memory":   {void: true},
		"a clock less":  {e: entry{since: 5}, rec: rpc.Record{Heard: 4}},
	} {
		s, cl := lossy()
		e := c.e
		e.key, e.at, s.chains.keys[1] = 1, node(s, 1, 0, 1), &e
		s.pool.nodes.held.drop(e.at.Handle)
		c.rec.Key, c.rec.New = 1, node(s, 1, 1, 1)
		s.pool.nodes.held.put(c.rec.New.Handle, held{client: cl.id, version: 1, void: c.void})
		s.chains.collect(cl.id, []rpc.Record{c.rec})
		if (e.at == c.rec.New) != c.adopted || (len(e.reported) == 0) != c.adopted {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A node exists if its segment has its class. In a fixed space every node does.
func TestNodesThatExist(t *testing.T) {
	s := segmented(3)
	other := s.pool.segment(1, 2, 0) // the segment has no class
	for h, want := range map[layout.Handle]bool{s.pool.segment(0, 2, 0): true, s.pool.segment(0, 2, 1): false, other: false, 1 << 30: false, 0: false} {
		if got := s.pool.exists(h); got != want {
			t.Errorf("node %d exists: %v", h, got)
		}
	}
	s.mem.space.Shared = false
	if !s.pool.exists(other) {
		t.Error("a node of a fixed space does not exist")
	}
}

// A class takes no segment while the orphan has nodes, nor if its nodes are longer than a segment.
func TestClassesThatTakeNoSegment(t *testing.T) {
	withMemory(t, 2, func(c *Config) { c.Region = 256 << 10 }, func(_ *pair, s *Server, _ verbs.Runtime) {
		unused := s.pool.segments.Unused(anywhere)
		if s.mem.space.PerSegment(s.mem.space.Largest()) != 1 || s.mem.space.PerSegment(s.mem.space.Largest()+1) != 0 {
			t.Errorf("segments of %d bytes", s.mem.space.SegmentLen())
		}
		if s.pool.grow(s.mem.space.Largest()+1) || s.pool.segments.Unused(anywhere) != unused {
			t.Error("a class takes a segment that is too short")
		}
		s.pool.orphans = true
		if s.pool.grow(1) || s.pool.segments.Unused(anywhere) != unused {
			t.Error("a class takes a segment while chains may lead into it")
		}
		s.pool.orphans = false
		if !s.pool.grow(s.mem.space.Largest()) || s.pool.segments.Unused(anywhere) != unused-2 || s.pool.nodes.free[s.mem.space.Largest()].Len(anywhere) != 2 {
			t.Errorf("%d segments are unused, before %d", s.pool.segments.Unused(anywhere), unused)
		}
		class := layout.Class(2)
		s.pool.grow(class) // one segment of each server, all of its nodes free
		if s.pool.segments.restAt = 0; s.pool.nodes.free[class].Len(0) != s.mem.space.PerSegment(class) {
			t.Errorf("%d nodes", s.pool.nodes.free[class].Len(0))
		}
		s.pool.nodes.free[class].Remove(func(l layout.Location) bool { return s.pool.onServer(l, 1) })
		if s.pool.rest(0); s.pool.segments.Resting() != 3 { // and those of the largest class
			t.Errorf("%d segments rest", s.pool.segments.Resting())
		}
	})
}

// A client's share counts the nodes of segments without a class as well.
func TestShareOfUnusedSegments(t *testing.T) {
	s := segmented(8)
	s.pool.clients = map[uint32]*client{1: {}, 2: {}}
	s.pool.segments.Table = slab.NewTable(2, 3) // six segments
	per := s.mem.space.PerSegment(0)
	for i := range 4 {
		s.pool.release(node(s, 0, i, 1))
	}
	if got, want := s.pool.share(0, 1000), max(1, min(max(fewest, per), (4+6*per)/8)); got != want {
		t.Errorf("%d nodes, want %d", got, want)
	}
	s.pool.segments.Table = slab.NewTable(2, 0)
	if got := s.pool.share(0, 1000); got != 1 {
		t.Errorf("%d nodes of four, for two clients", got)
	}
}

// A client finds no free node: it is told to come back if others may give some back, or some will
// be free by themselves.
func TestNoNodeNow(t *testing.T) {
	for name, c := range map[string]struct {
		holder, asks uint32
		worn         bool
		want         rpc.Status
	}{
		"all are its own":       {7, 7, false, rpc.Full},
		"another one has some":  {8, 7, false, rpc.Busy},
		"its own, and worn":     {7, 7, true, rpc.Busy},
		"others have, and worn": {8, 7, true, rpc.Busy},
	} {
		s, now := segmented(8), clock.Time(1000)
		s.mem.rt, s.mem.cfg.Lease = ticking{now: &now}, 100
		s.pool.segments.restAt = now + clock.Time(restPause) + 1 // no search
		s.chains.sweepAt = now + 1
		s.pool.clients = map[uint32]*client{7: {id: 7, heard: now, epoch: 0}, 8: {id: 8, heard: now}}
		s.pool.nodes.held.put(node(s, 1, 0, 1).Handle, held{client: c.holder, version: 1})
		if c.worn {
			s.pool.nodes.worn = []worn{{handle: node(s, 1, 1, 1).Handle, epoch: s.pool.epoch}}
		}
		var a rpc.Answer
		if s.alloc(s.pool.clients[c.asks], &rpc.Request{Op: rpc.OpAlloc, N: 1}, &a); a.Status != c.want || a.N != 0 || a.Slot != 0 {
			t.Errorf("%s: %v, %d nodes, %d segments", name, a.Status, a.N, a.Slot)
		}
	}
}

// A server has exactly the nodes that are kept for tombstones: another request takes nodes
// elsewhere, or new segments, and leaves those.
func TestNodesForTombstonesAreLeft(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl := &client{id: 7, heard: s.mem.rt.Now(), epoch: s.pool.epoch}
		s.pool.clients[7] = cl
		s.pool.nodes.free[0].Remove(func(layout.Location) bool { return true })
		for n := range tombstones {
			s.pool.release(node(s, 1, n, 1))
		}
		unused := s.pool.segments.Unused(1)
		var a rpc.Answer
		if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 2}, &a); a.Status != rpc.OK || a.N != 1 || s.pool.segments.Unused(1) != unused-1 || !s.pool.onServer(a.Locations[0], 1) {
			t.Errorf("%v, %d nodes, %d segments taken", a.Status, a.N, unused-s.pool.segments.Unused(1))
		}
		var b rpc.Answer
		s.pool.nodes.free[0].Remove(func(l layout.Location) bool {
			return l.Handle >= node(s, 1, tombstones, 1).Handle || s.pool.onServer(l, 0)
		})
		if s.pool.allocFree(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1}, &b) || !s.pool.allocFree(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Tombstone: true}, &b) {
			t.Error("nodes for tombstones are given for others, or not for tombstones")
		}
	})
}

// A late OpHello ends no number, and a new one ends the number that its client had.
func TestHelloEndsTheNumberBefore(t *testing.T) {
	m := newMailbox(t)
	m.s.pool.nextID, m.s.pool.endID = 5, 100
	r := rpc.Request{Op: rpc.OpHello, Client: 1, Seq: 8, Quiet: true}
	m.arrives(r.AppendTo(nil), func(r calls.Request) bool { m.s.request(r); return true })
	if cl := m.s.pool.clients[1]; !cl.gone || !cl.quiet || m.s.pool.clients[6] == nil || m.s.pool.clients[6].former != 1 {
		t.Errorf("%+v, then %+v", cl, m.s.pool.clients[6])
	}
}

// The last free node of another server is given without a search for more. The only node of a
// segment is given by the server that is named.
func TestOneNodeIsEnough(t *testing.T) {
	s, cl := lossy()
	s.pool.nodes.held = heldNodes{}
	s.pool.clients = map[uint32]*client{cl.id: cl}
	now := clock.Time(1000)
	s.mem.rt = ticking{now: &now}
	s.pool.release(node(s, 1, 0, 1))
	var a rpc.Answer
	if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 1}, &a); a.N != 1 || s.chains.sweepAt != 0 {
		t.Errorf("%d nodes, next sweep not before %v", a.N, s.chains.sweepAt)
	}
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl := &client{id: 7, heard: s.mem.rt.Now(), epoch: s.pool.epoch}
		s.pool.clients[7] = cl
		var a rpc.Answer
		if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 2, Class: s.mem.space.Largest()}, &a); a.N != 1 || !s.pool.onServer(a.Locations[0], 1) {
			t.Errorf("%v, %d nodes, %v", a.Status, a.N, a.Locations[0])
		}
	})
}

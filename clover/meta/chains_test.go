package meta

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	calls "github.com/rdmalab/rdmalab/store/rpc"
	"github.com/rdmalab/rdmalab/store/slab"
)

// Mirrors in memory that was lost, or on a server that is out, are not read.
func TestMirrorsThatDoNotCount(t *testing.T) {
	for name, change := range map[string]func(m *memory){
		"their memory was lost": func(m *memory) { m.generation = 0 },
		"their server is out":   func(m *memory) { m.out = true },
	} {
		s, _ := lossy()
		first, ok := s.mem.space.Mirror(0)
		s.mem.memory[first.Server].generation = 5
		change(&s.mem.memory[first.Server])
		if known, err := s.members.readMirrors(0, nil); !ok || known || err != nil {
			t.Errorf("%s: known %v, %v", name, known, err)
		}
	}
}

// An entry of which a DELETE was reported is closing, whatever is reported after that.
func TestReportsAfterADelete(t *testing.T) {
	s, cl := lossy()
	e := &entry{key: 1, at: node(s, 1, 0, 1)}
	s.chains.keys[1] = e
	for i, deleted := range []bool{false, true, false} {
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, New: node(s, 1, i+1, 1), Deleted: deleted}})
		if want := i > 0; e.closing != want {
			t.Errorf("report %d: closing %v", i, e.closing)
		}
	}
}

// The counters say how many nodes there are in each state.
func TestCountersOfNodes(t *testing.T) {
	s, _ := lossy()
	for n := range 3 {
		s.pool.linked(node(s, 1, n, 1))
	}
	s.pool.release(node(s, 1, 0, 2))
	s.pool.linked(node(s, 0, 0, 1))
	s.pool.nodes.worn = []worn{{handle: node(s, 0, 0, 1).Handle}}
	s.mem.memory[1].out = true
	s.chains.keys[1], s.chains.keys[2] = &entry{lost: true}, &entry{}
	st := s.Snapshot()
	if st.Nodes != 8 || st.Held != 4 || st.Free != 1 || st.Worn != 1 || st.Linked != 2 || st.Keys != 2 || st.LostKeys != 1 || st.Copies != 1 || st.Away != 1 {
		t.Errorf("%+v", st)
	}
	if len(st.Servers) != 2 || st.Servers[1].Free != 1 {
		t.Errorf("%+v", st.Servers)
	}
}

// No search for segments that can rest begins while some rest already, before its time, or in a fixed
// space.
func TestNoSearchForSegmentsThatRest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Server)
		begins bool
	}{
		"it is due":   {func(*Server) {}, true},
		"too early":   {func(s *Server) { s.pool.segments.restAt++ }, false},
		"some rest":   {func(s *Server) { s.pool.segments.Rest(slab.Segment{N: 1}, 1) }, false},
		"fixed space": {func(s *Server) { s.mem.space.Shared = false }, false},
	} {
		s, now := segmented(8), clock.Time(1000)
		s.mem.rt, s.pool.segments.restAt = ticking{now: &now}, now
		c.change(s)
		before := s.pool.segments.restAt
		if s.pool.rest(1); (s.pool.segments.restAt != before) != c.begins {
			t.Errorf("%s: the next search is at %d, was at %d", name, s.pool.segments.restAt, before)
		}
	}
}

// The nodes of a client are taken back in the order of their handles, so that a seed decides all.
func TestNodesOfAClientAreSorted(t *testing.T) {
	s, cl := lossy()
	if list := s.pool.heldBy(cl.id)[cl.id]; len(list) != 8 || !slices.IsSorted(list) || len(s.pool.heldBy(cl.id + 1)[cl.id+1]) != 0 {
		t.Errorf("%v", list)
	}
}

// At the end of a chain the reported nodes are superseded, but not those that clients got again since, and
// those in lost memory.
func TestReportedNodes(t *testing.T) {
	e := &entry{key: 1}
	for name, c := range map[string]struct {
		now held
		is  bool
	}{
		"not met in the chain":           {held{client: 7, version: 1, entry: e}, true},
		"met in the chain":               {held{}, false},
		"given again":                    {held{client: 7, version: 2, entry: e}, false},
		"given again, of another key":    {held{client: 7, version: 1, entry: &entry{key: 2}}, false},
		"given again, and not reported":  {held{client: 7, version: 1}, false},
		"its memory was lost":            {held{client: orphan, version: 1, entry: e, void: true}, false},
		"its memory was lost, formatted": {held{client: orphan, void: true}, false},
	} {
		s, _ := lossy()
		l := node(s, 1, 1, 1)
		s.pool.nodes.held.put(l.Handle, c.now)
		e.reported, e.passed = []reported{{at: l}}, nil
		s.chains.freeReported(e)
		if h := s.pool.nodes.held.of(l.Handle); len(e.reported) != 0 || (len(e.passed) == 1) != c.is || (h == c.now) == c.is {
			t.Errorf("%s: %v stay reported, %+v, superseded %v", name, e.reported, h, e.passed)
		}
	}
}

// The periodic work frees worn nodes; so does a request that finds no free node.
func TestWornNodesOfAnEarlierEpoch(t *testing.T) {
	s, now := alone(), clock.Time(10)
	s.pool.nodes.held = heldNodes{}
	s.mem.rt, s.mem.memory[0].blank, s.front = ticking{now: &now}, false, new(calls.Server)
	s.pool.nodes.worn = []worn{{node(s, 1, 0, 1).Handle, s.pool.epoch - 1}}
	if s.keep(now); s.pool.nodes.free[0].Len(1) != 1 {
		t.Error("a worn node is not freed by the periodic work")
	}
	s, cl := lossy()
	s.pool.nodes.held = heldNodes{}
	s.pool.epoch, s.mem.rt, s.mem.cfg.Lease = 3, ticking{now: &now}, time.Second
	cl.epoch, cl.heard = 3, now
	s.pool.clients = map[uint32]*client{cl.id: cl}
	s.pool.nodes.worn = []worn{{node(s, 1, 0, 1).Handle, 2}}
	s.pool.segments.pressed[0] = 5
	var a rpc.Answer
	if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1}, &a); a.Status != rpc.OK || a.N != 1 || a.Locations[0] != node(s, 1, 0, 1) || s.pool.segments.pressed[0] != 0 {
		t.Errorf("%v, %d nodes, %v, none was free since %d", a.Status, a.N, a.Locations[0], s.pool.segments.pressed[0])
	}
	a, s.pool.segments.pressed[0] = rpc.Answer{}, 5
	if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1}, &a); a.Status != rpc.Full || a.N != 0 || s.pool.segments.pressed[0] != 5 {
		t.Errorf("%v, %d nodes, none was free since %d", a.Status, a.N, s.pool.segments.pressed[0])
	}
}

// A request names the server whose nodes it prefers, counted from 1.
func TestServerThatARequestNames(t *testing.T) {
	s, _ := lossy()
	for near, want := range map[int]int{0: anywhere, 1: 0, 2: 1, 3: anywhere} {
		if got, _, _ := s.pool.wanted(&rpc.Request{Near: near, N: 1}); got != want {
			t.Errorf("near %d: server %d, want %d", near, got, want)
		}
	}
}

// A sweep follows all chains, at most once in a pause. It is due again if a memory server did not answer.
func TestSweep(t *testing.T) {
	s, _ := lossy()
	now := clock.Time(1000)
	s.mem.rt, s.chains.sweepAt = ticking{now: &now}, now+1
	e := &entry{key: 1, slot: 0, at: node(s, 0, 1, 1), recorded: true, mirrored: true} // in lost memory
	s.chains.keys[1] = e
	if s.chains.sweep(); e.lost || s.chains.sweepAt != now+1 {
		t.Errorf("too early: %+v", e)
	}
	now++
	if s.chains.sweep(); !e.lost || s.chains.sweepAt != now.Add(sweepPause) || !s.chains.sweepDue {
		t.Errorf("%+v, due %v, not before %v", e, s.chains.sweepDue, s.chains.sweepAt)
	}
	now = now.Add(sweepPause)
	e.recorded, s.chains.sweepDue = true, false
	s.chains.keys[1].slot = 4 // no slot of the store
	if s.chains.sweep(); s.chains.sweepDue {
		t.Error("it is due again although all is known")
	}
}

// A change of the view waits for the leases of all clients, and makes them say hello again.
func TestBeginOfAChange(t *testing.T) {
	s := alone()
	s.mem.cfg.Lease = time.Second
	now := clock.Time(100)
	s.pool.clients[1], s.pool.clients[2] = &client{heard: 50}, &client{heard: 70}
	s.members.begin(now)
	if c := s.members.change; c.fence == nil || c.until != clock.Time(70).Add(time.Second) || c.asked != now || !s.pool.clients[1].stale || !s.pool.clients[2].stale {
		t.Errorf("%+v", c)
	}
}

// No round trip is made when none is allowed.
func TestFollowWithoutRoundTrips(t *testing.T) {
	s, _ := lossy()
	e := &entry{at: node(s, 0, 1, 1), ended: true}
	if s.chains.follow([]*entry{e}, 0); e.lost || e.ended {
		t.Errorf("%+v", e)
	}
	if s.chains.follow([]*entry{e}, 1); !e.lost {
		t.Error("the first round trip does not show that the memory is lost")
	}
}

// Before a client is told that no slot is left, all reports are followed, however many wait.
func TestFullAfterManyReports(t *testing.T) {
	s, cl := lossy()
	s.chains.slots = nil
	for range 2*lanes + 1 {
		s.chains.tidy.due = append(s.chains.tidy.due, &entry{key: 9})
	}
	var a rpc.Answer
	if s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: 2, At: node(s, 1, 0, 1)}, &a); a.Status != rpc.Full || len(s.chains.tidy.due) != 0 {
		t.Errorf("%v, and %d entries are due", a.Status, len(s.chains.tidy.due))
	}
}

// While no memory server answers, the metadata server does not say that a key exists: it may be deleted.
func TestOpenWhileNoServerAnswers(t *testing.T) {
	s, cl := lossy()
	s.mem.space.Backups, s.mem.memory[0].out, s.mem.memory[1].out = 1, true, true
	s.chains.keys[1] = &entry{key: 1, at: node(s, 1, 1, 1), recorded: true, mirrored: true}
	var a rpc.Answer
	if s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: 1, At: node(s, 1, 0, 1)}, &a); a.Status != rpc.Busy {
		t.Errorf("%v", a.Status)
	}
}

// While chains may lead into lost memory, a client is not sent to a node before its chain was followed.
func TestQueryWhileMemoryIsVoid(t *testing.T) {
	for _, void := range []bool{false, true} {
		s, cl := lossy()
		s.mem.memory[1].out, s.pool.void = true, void
		s.chains.keys[1] = &entry{key: 1, at: node(s, 0, 1, 1), recorded: true, mirrored: true}
		var a rpc.Answer
		if s.query(cl, &rpc.Request{Op: rpc.OpQuery, Key: 1}, &a); (a.Status == rpc.OK) == void || s.chains.keys[1].lost != void {
			t.Errorf("void %v: %v", void, a.Status)
		}
	}
}

// A key that could not be opened is forgotten when the directory is as it was before.
func TestErasedKeysAreForgotten(t *testing.T) {
	s, _ := lossy()
	s.chains.unopened = []*entry{{key: 1, lost: true, recorded: true, mirrored: true}, {key: 2, lost: true, recorded: true, mirrored: true}}
	if !s.chains.erase() || len(s.chains.unopened) != 0 {
		t.Errorf("%d are left", len(s.chains.unopened))
	}
}

// A client gets a part of the nodes that are left, so that others get some, but at least one.
func TestShareOfAClient(t *testing.T) {
	for _, c := range []struct{ left, clients, n, want int }{{20, 0, 100, 5}, {20, 1, 100, 5}, {20, 2, 100, 2}, {40, 2, 3, 3}, {1, 1, 100, 1}, {2, 1, 0, 1}} {
		s, now := segmented(8), clock.Time(0)
		s.mem.rt, s.pool.clients = ticking{now: &now}, map[uint32]*client{}
		s.mem.space = layout.Space{Servers: 2, Shortcuts: 4}
		s.mem.space.ShareIn(1<<20, layout.Classes-1)
		s.pool.segments.Table = slab.NewTable(2, 0)
		for i := range c.left {
			s.pool.release(node(s, 0, i, 1))
		}
		for i := range c.clients {
			s.pool.clients[uint32(i)] = &client{}
		}
		if got := s.pool.share(0, c.n); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// The nodes of one segment, but at most so many, are kept for tombstones, and no others.
func TestNodesForTombstones(t *testing.T) {
	for _, c := range []struct {
		largest   layout.Class
		of        layout.Class
		tombstone bool
		fixed     bool
		want      int
	}{
		{largest: layout.Classes - 1, want: tombstones}, {largest: 5, want: 32}, {largest: 5, tombstone: true}, {largest: 5, of: 1}, {largest: 5, fixed: true},
	} {
		s, _ := lossy()
		s.mem.space = layout.Space{Servers: 2, Shortcuts: 4}
		s.mem.space.ShareIn(1<<20, c.largest)
		s.mem.space.Shared = !c.fixed
		if got := s.pool.reserved(c.of, c.tombstone); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

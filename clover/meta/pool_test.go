package meta

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/slab"
)

// node returns the location of a node of class 0 in a lossy server's space.
func node(s *Server, server, n int, version layout.Version) layout.Location {
	return layout.Location{Handle: s.mem.space.First(server, 0) + layout.Handle(n), Version: version}
}

// segmented returns a lossy server in which no client holds a node, with segments of which the first k have a class.
func segmented(k int) *Server {
	s, _ := lossy()
	s.pool.nodes.held = heldNodes{}
	s.mem.space.Shared = true
	s.pool.segments.Table = slab.NewTable(2, 4)
	for n := range k {
		s.pool.segments.Set(slab.Segment{N: n % 4, Server: n / 4}, 0)
	}
	return s
}

// A client without a free node is told to come back if nodes of its class will become free by themselves:
// resting, worn, or held by a client that has gone, is unknown, or whose lease is over.
func TestNodesThatWillBecomeFree(t *testing.T) {
	const lease = time.Second
	for name, c := range map[string]struct {
		change func(s *Server)
		want   bool
	}{
		"none":            {func(*Server) {}, false},
		"a segment rests": {func(s *Server) { s.pool.segments.Rest(slab.Segment{N: 1}, 1) }, true},
		"the orphan has some, and segments are unused": {func(s *Server) { s.pool.orphans = true }, true},
		"the orphan has some, and no segment is unused": {func(s *Server) {
			s.pool.orphans = true
			for i := range 8 {
				s.pool.segments.Set(slab.Segment{Server: i / 4, N: i % 4}, 0)
			}
		}, false},
		"the orphan has some, and one segment is unused": {func(s *Server) {
			s.pool.orphans = true
			for i := range 7 {
				s.pool.segments.Set(slab.Segment{Server: i / 4, N: i % 4}, 0)
			}
		}, true},
		"a worn node": {func(s *Server) { s.pool.nodes.worn = []worn{{handle: node(s, 0, 0, 1).Handle}} }, true},
		"a client works": {func(s *Server) {
			s.pool.clients[7] = &client{heard: 5}
			s.pool.nodes.held.put(node(s, 0, 0, 1).Handle, held{client: 7})
		}, false},
		"a client is gone": {func(s *Server) {
			s.pool.clients[7] = &client{gone: true, heard: 5}
			s.pool.nodes.held.put(node(s, 0, 0, 1).Handle, held{client: 7})
		}, true},
		"a lease is over": {func(s *Server) {
			s.pool.clients[7] = &client{heard: 4}
			s.pool.nodes.held.put(node(s, 0, 0, 1).Handle, held{client: 7})
		}, true},
		"of no client": {func(s *Server) { s.pool.nodes.held.put(node(s, 0, 0, 1).Handle, held{client: 7}) }, true},
	} {
		s := segmented(3)
		now := clock.Time(5).Add(lease)
		s.mem.rt, s.mem.cfg.Lease, s.pool.clients = ticking{now: &now}, lease, map[uint32]*client{}
		c.change(s)
		if got := s.pool.expected(0); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := s.pool.expected(1); got != (c.want && (s.pool.orphans || s.pool.segments.Resting() > 0)) {
			t.Errorf("%s, of another class: %v", name, got)
		}
	}
}

// A server is asked for few nodes at a time while it has unused segments, and one is enough when it has none.
func TestFewNodesOfAServer(t *testing.T) {
	s := segmented(4) // all of server 0, none of server 1
	for _, c := range []struct{ server, n, want int }{{0, 1, 1}, {0, 9, 1}, {1, 1, 1}, {1, fewest, fewest}, {1, 9, fewest}, {anywhere, 9, fewest}} {
		if got := s.pool.few(c.server, c.n); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// The room on a server is that of its free nodes and of its segments without a class.
func TestRoomOnAServer(t *testing.T) {
	s := segmented(3)
	s.pool.release(node(s, 0, 0, 1))
	s.pool.release(node(s, 1, 0, 1))
	s.pool.release(node(s, 1, 1, 1))
	size := layout.Class(0).Size()
	if a, b := s.pool.room(0), s.pool.room(1); a != size+s.mem.space.SegmentLen() || b != 2*size+4*s.mem.space.SegmentLen() {
		t.Errorf("%d and %d bytes, with nodes of %d and segments of %d", a, b, size, s.mem.space.SegmentLen())
	}
}

// A batch of nodes leaves what is reserved, ends when there are no more, and is held by its client.
func TestNodesThatAreGiven(t *testing.T) {
	s, _ := lossy()
	s.pool.nodes.held = heldNodes{}
	for n := range 4 {
		s.pool.release(node(s, n%2, n, 3))
	}
	if list := s.pool.give(9, 0, anywhere, 3, 2, nil); len(list) != 2 || !s.pool.heldAs(9, list[0]) || s.pool.heldAs(8, list[0]) || s.pool.heldAs(9, layout.Location{Handle: list[0].Handle, Version: 2}) || !s.pool.heldAs(9, layout.Location{Handle: list[0].Handle, Version: 4}) {
		t.Errorf("%v, held %v", list, s.pool.nodes.held)
	}
	if list := s.pool.give(9, 0, 1, 5, 0, nil); len(list) != 1 || !s.pool.onServer(list[0], 1) || s.pool.onServer(list[0], 0) {
		t.Errorf("%v of one server", list)
	}
	s.pool.balance.weights = []int64{0, 0} // no server has a weight: as without weights
	if list := s.pool.give(9, 0, anywhere, 5, 0, nil); len(list) != 1 || s.pool.nodes.free[0].Len(anywhere) != 0 {
		t.Errorf("%v, %d left", list, s.pool.nodes.free[0].Len(anywhere))
	}
}

// Worn nodes become free with version 1 when all clients have left their epoch. A new epoch begins when nodes
// wait for it and all clients are in the present one.
func TestEpochsOfWornNodes(t *testing.T) {
	for _, c := range []struct {
		what    string
		worn    []uint32
		clients []uint32
		freed   int
		epoch   uint32
		left    int
	}{
		{"nothing waits", nil, []uint32{5}, 0, 5, 0},
		{"of an earlier epoch", []uint32{4}, []uint32{5}, 1, 5, 0},
		{"a client is in that epoch", []uint32{4}, []uint32{5, 4}, 0, 5, 1},
		{"of the present epoch", []uint32{5}, []uint32{5}, 0, 6, 1},
		{"of both", []uint32{4, 5}, []uint32{5}, 1, 6, 1},
		{"of the present epoch, a client is behind", []uint32{5}, []uint32{4}, 0, 5, 1},
		{"no client", []uint32{3, 5}, nil, 1, 6, 1},
	} {
		s, _ := lossy()
		s.pool.nodes.held = heldNodes{}
		now := clock.Time(77)
		s.mem.rt, s.pool.epoch, s.pool.clients = ticking{now: &now}, 5, map[uint32]*client{}
		for i, e := range c.worn {
			s.pool.nodes.worn = append(s.pool.nodes.worn, worn{node(s, 1, i, 1).Handle, e})
		}
		for i, e := range c.clients {
			s.pool.clients[uint32(i)] = &client{epoch: e}
		}
		s.pool.turn()
		if s.pool.nodes.free[0].Len(1) != c.freed || s.pool.epoch != c.epoch || len(s.pool.nodes.worn) != c.left || (s.pool.turnedAt == 77) != (c.epoch == 6) {
			t.Errorf("%s: %d free, epoch %d since %v, %d worn", c.what, s.pool.nodes.free[0].Len(1), s.pool.epoch, s.pool.turnedAt, len(s.pool.nodes.worn))
		}
		if l, ok := s.pool.nodes.free[0].Pop(1); ok && l.Version != 1 {
			t.Errorf("%s: version %d", c.what, l.Version)
		}
	}
}

// Before the stamps of shortcuts repeat, all shortcuts are erased; while a memory server is away, the epoch
// does not begin.
func TestEpochThatErasesShortcuts(t *testing.T) {
	for epoch, want := range map[uint32]bool{staleEpochs - 2: true, staleEpochs - 1: false, staleEpochs: true, 2*staleEpochs - 1: false} {
		s, _ := lossy() // the memory of a server is lost
		s.pool.epoch = epoch
		if got := s.pool.mayTurn(); got != want {
			t.Errorf("after epoch %d: %v", epoch, got)
		}
	}
}

// The nodes of lost memory belong to no list any more: the orphan holds them, and a chain that leads there is
// lost. The nodes of other servers stay.
func TestNodesOfLostMemory(t *testing.T) {
	s, _ := lossy()
	s.pool.nodes.held = heldNodes{}
	s.pool.noSegments()
	for i := range 2 {
		s.pool.release(node(s, i, 0, 1))
		s.pool.nodes.worn = append(s.pool.nodes.worn, worn{handle: node(s, i, 1, 1).Handle})
	}
	s.chains.keys[1] = &entry{key: 1, at: node(s, 0, 2, 1), passed: []layout.Location{node(s, 1, 2, 1)}, recorded: true}
	s.chains.keys[2] = &entry{key: 2, at: node(s, 1, 3, 1), passed: []layout.Location{node(s, 0, 3, 1), node(s, 1, 2, 2)}, recorded: true}
	s.pool.voidServer(0)
	s.chains.forsake(0)
	if s.pool.nodes.free[0].Len(0) != 0 || s.pool.nodes.free[0].Len(1) != 1 || len(s.pool.nodes.worn) != 1 || !s.pool.onServer(layout.Location{Handle: s.pool.nodes.worn[0].handle}, 1) {
		t.Errorf("free %d and %d, worn %v", s.pool.nodes.free[0].Len(0), s.pool.nodes.free[0].Len(1), s.pool.nodes.worn)
	}
	if s.pool.nodes.held.len() != 4 || !s.pool.orphans || !s.pool.void {
		t.Errorf("%d nodes are held, orphans %v, void %v", s.pool.nodes.held.len(), s.pool.orphans, s.pool.void)
	}
	for h, n := range s.pool.nodes.held.all() {
		if n != (held{client: orphan, void: true}) || !s.pool.onServer(layout.Location{Handle: h}, 0) {
			t.Errorf("node %d: %+v", h, n)
		}
	}
	if e := s.chains.keys[1]; !e.lost || e.recorded || !e.at.IsZero() || len(e.passed) != 1 {
		t.Errorf("the key whose newest node is lost: %+v", e)
	}
	if e := s.chains.keys[2]; e.lost || !e.recorded || !slices.Equal(e.passed, []layout.Location{node(s, 1, 2, 2)}) {
		t.Errorf("the key that has passed a lost node: %+v", e)
	}
}

// The orphan's nodes become free when the fence of its clients is over and the time has come: in turn from
// all servers, and two versions later, because a client may have got the next one.
func TestNodesOfTheOrphan(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Server)
		want   bool
	}{
		"no fence":           {func(*Server) {}, true},
		"a fence that lasts": {func(s *Server) { s.pool.orphansAfter = s.pool.fences.Add(3) }, false},
		"no orphan":          {func(s *Server) { s.pool.orphans = false }, false},
		"too early":          {func(s *Server) { s.pool.orphansAt = 11 }, false},
		"in time":            {func(s *Server) { s.pool.orphansAt = 10 }, true},
		"an unknown chain": {func(s *Server) {
			s.chains.keys[1] = &entry{key: 1, at: node(s, 0, 0, 1), recorded: true, mirrored: true}
		}, false},
	} {
		s, _ := lossy()
		s.pool.nodes.held = heldNodes{}
		now := clock.Time(10)
		s.mem.rt, s.pool.clients, s.pool.orphans = ticking{now: &now}, map[uint32]*client{}, true
		s.mem.space.Backups = 1 // a server that is away answers nothing
		s.mem.memory[0].out, s.mem.memory[1].out = true, true
		c.change(s)
		for i := range 2 {
			for n := range 2 {
				s.pool.nodes.held.put(node(s, i, n, 1).Handle, held{client: orphan, version: 4})
			}
		}
		s.recoverOrphans(now)
		if !c.want {
			if s.pool.nodes.held.len() != 4 || name == "an unknown chain" && s.pool.orphansAt != now.Add(downPause) {
				t.Errorf("%s: %d nodes are held, next attempt at %v", name, s.pool.nodes.held.len(), s.pool.orphansAt)
			}
			continue
		}
		if s.pool.nodes.held.len() != 0 || s.pool.orphans || s.pool.orphansAfter != nil {
			t.Errorf("%s: %d nodes are held", name, s.pool.nodes.held.len())
		}
		for i, want := range []layout.Location{node(s, 0, 0, 6), node(s, 1, 0, 6), node(s, 0, 1, 6), node(s, 1, 1, 6)} {
			if l, _ := s.pool.nodes.free[0].Pop(anywhere); l != want {
				t.Errorf("%s: node %d is %v, want %v", name, i, l, want)
			}
		}
	}
}

// Which copies count: the first one and the last one of those on servers that are not out.
func TestCopiesThatCount(t *testing.T) {
	s, _ := lossy()
	s.mem.memory = make([]memory, 3)
	s.mem.space = layout.Space{Servers: 3, Shortcuts: 4, Entries: layout.Counts{4}, Backups: 2}
	p, _ := s.mem.space.Place(s.mem.space.First(1, 0))
	for _, c := range []struct {
		out         []int
		list        []int
		first, last int
		gone        bool
		set         uint16
	}{
		{nil, []int{1, 2, 0}, 1, 0, false, 0},
		{[]int{1}, []int{2, 0}, 2, 0, false, 2},
		{[]int{0}, []int{1, 2}, 1, 2, false, 1},
		{[]int{0, 1}, []int{2}, 2, 2, false, 3},
		{[]int{0, 1, 2}, nil, 0, 0, true, 7},
	} {
		for i := range s.mem.memory {
			s.mem.memory[i].out = slices.Contains(c.out, i)
		}
		var list []int
		for _, q := range s.mem.copies(p) {
			list = append(list, q.Server)
		}
		first, err := s.mem.copyOf(p, false)
		last, err2 := s.mem.copyOf(p, true)
		if !slices.Equal(list, c.list) || (err != nil) != c.gone || (err2 != nil) != c.gone || s.mem.isGone(1) != c.gone || s.mem.outs() != c.set {
			t.Errorf("%v out: copies on %v, %v, %v, gone %v, %b", c.out, list, err, err2, s.mem.isGone(1), s.mem.outs())
		}
		if !c.gone && (first.Server != c.first || last.Server != c.last) {
			t.Errorf("%v out: the first copy is on %d, the last one on %d", c.out, first.Server, last.Server)
		}
	}
	if !slices.Equal(s.mem.serversOf(2), []int{2, 0, 1}) || s.mem.before(0, 1) != 2 || s.mem.before(2, 2) != 0 || s.mem.before(1, 0) != 1 {
		t.Errorf("copies of server 2 on %v", s.mem.serversOf(2))
	}
}

// A view is taken from a superblock unless it is older; a store without copies has none. A server
// that another superblock of the same view calls out stays out.
func TestViewOfASuperblock(t *testing.T) {
	for _, c := range []struct {
		had, view uint32
		backups   int
		taken     bool
	}{{4, 5, 1, true}, {5, 5, 1, true}, {6, 5, 1, false}, {4, 5, 0, false}} {
		s, _ := lossy()
		s.mem.view = c.had
		s.mem.memory[0].out, s.mem.memory[1].out = true, false
		s.mem.see(&layout.Superblock{Space: layout.Space{Backups: c.backups}, View: c.view, Out: 2})
		want := c.had
		if c.taken {
			want = c.view
		}
		if s.mem.view != want || s.mem.memory[0].out == (c.taken && c.view > c.had) || s.mem.memory[1].out != c.taken {
			t.Errorf("%+v: view %d, out %v and %v", c, s.mem.view, s.mem.memory[0].out, s.mem.memory[1].out)
		}
	}
}

// A server is silent when it has not answered for more than half a lease.
func TestSilentServers(t *testing.T) {
	s := alone()
	now := clock.Time(100)
	s.mem.rt, s.mem.cfg.Lease = ticking{now: &now}, 20
	for since, want := range map[clock.Time]bool{0: false, 89: true, 90: false, 100: false} {
		s.mem.memory[0].since = since
		if got := s.members.isSilent(0); got != want {
			t.Errorf("since %d: %v", since, got)
		}
	}
}

// Operations on a memory server of a store with copies have short limits, so that clients keep their leases.
func TestLimitsOfOperations(t *testing.T) {
	for _, c := range []struct {
		backups         int
		lease           time.Duration
		deadline, reach time.Duration
		pause           time.Duration
	}{
		{0, 2 * time.Second, memoryTimeout, reachTimeout, downPause},
		{1, 2 * time.Second, 500 * time.Millisecond, reachTimeout, downPause},
		{1, time.Second, 250 * time.Millisecond, 125 * time.Millisecond, 62500 * time.Microsecond},
		{1, time.Hour, memoryTimeout, reachTimeout, downPause},
		{1, time.Millisecond, 5 * keepEvery, keepEvery, keepEvery},
	} {
		s, _ := lossy()
		s.mem.space.Backups, s.mem.cfg.Lease = c.backups, c.lease
		if got := s.mem.deadline(); got != clock.Time(0).Add(c.deadline) || s.mem.reachTime() != c.reach || s.mem.retryPause() != c.pause {
			t.Errorf("%+v: %v, %v, %v", c, got, s.mem.reachTime(), s.mem.retryPause())
		}
		if s.mem.starting = true; s.mem.deadline() != clock.Time(0).Add(memoryTimeout) {
			t.Errorf("%+v: %v while no client waits", c, s.mem.deadline())
		}
	}
	if (&Config{Lease: time.Second}).probe() != 250*time.Millisecond || (&Config{Lease: time.Millisecond}).probe() != keepEvery {
		t.Error("a server is probed four times in a lease, at most once in the period of the main loop")
	}
}

// What a client's requests say of it: it works, and in which epoch it is. An epoch that has not begun does
// not count.
func TestWhatIsHeardOfAClient(t *testing.T) {
	for _, c := range []struct{ had, says, want uint32 }{{2, 3, 3}, {3, 2, 3}, {2, 9, 5}} {
		s := alone()
		now := clock.Time(9)
		s.mem.rt, s.pool.epoch = ticking{now: &now}, 5
		cl := &client{epoch: c.had, gone: true, quiet: true}
		s.hear(cl, &rpc.Request{Seq: 4, Epoch: c.says})
		if cl.epoch != c.want || cl.heard != 9 || cl.gone || cl.quiet || cl.seq != 4 {
			t.Errorf("%+v: %+v", c, cl)
		}
	}
}

// A store that was found in memory keeps its space, also one of a single server, whatever the configuration
// says. A region that has become too small is refused.
func TestSpaceOfAStoreInMemory(t *testing.T) {
	stored := layout.Space{Servers: 1, Shortcuts: 4, Entries: layout.Counts{4}}
	for name, c := range map[string]struct {
		stored, region int
		fits           bool
		kept           bool
	}{
		"as large as it was": {1, stored.RegionLen(), true, true},
		"too small":          {1, stored.RegionLen() - 1, false, true},
		"none in memory":     {0, 1 << 20, true, false},
	} {
		s, _ := lossy()
		s.mem.cfg = Config{Keys: 1000, Format: layout.Hardened}.withDefaults()
		s.mem.cfg.Servers = make([]netip.Addr, 2)
		s.mem.space = stored
		err := s.mem.arrange(c.region, c.stored == 1)
		if (err == nil) != c.fits || (s.mem.space == stored) != c.kept {
			t.Errorf("%s: %v, %+v", name, err, s.mem.space)
		}
	}
}

// The nodes of a client that has gone stay its own while a key that could not be opened may still be in the
// directory: a restarted server would find the key, with one of these nodes.
func TestNodesBesideAnUnopenedKey(t *testing.T) {
	s, cl := lossy() // the first memory server answers nothing
	s.chains.unopened = []*entry{{key: 1, slot: 0, dead: true}}
	if s.recoverClient(cl.id, s.pool.heldBy(cl.id)[cl.id]) || s.pool.nodes.held.len() != 8 || len(s.chains.unopened) != 1 {
		t.Errorf("%d nodes are held, %d keys are not opened", s.pool.nodes.held.len(), len(s.chains.unopened))
	}
	if list := s.pool.heldBy(cl.id)[cl.id]; len(list) != 8 || !slices.IsSorted(list) || len(s.pool.heldBy(cl.id + 1)[cl.id+1]) != 0 {
		t.Errorf("the client holds %v", list)
	}
}

// Segments of which all nodes are free rest, except those of the class that asks and the first one of each
// server, which is for tombstones. The next search is some time later.
func TestSegmentsThatRest(t *testing.T) {
	s := segmented(8)
	var now clock.Time = 1000
	s.mem.rt = ticking{now: &now}
	n := s.mem.space.PerSegment(0)
	for _, x := range []slab.Segment{{Server: 0, N: 0}, {Server: 0, N: 1}, {Server: 1, N: 0}, {Server: 1, N: 3}} {
		for j := range n {
			s.pool.release(layout.Location{Handle: s.pool.segment(x.Server, x.N, 0) + layout.Handle(j), Version: 1})
		}
	}
	rests := func() (list []slab.Segment) {
		for i := range 2 {
			for k := range 4 {
				if x := (slab.Segment{Server: i, N: k}); s.pool.segments.Rests(x) {
					list = append(list, x)
				}
			}
		}
		return list
	}
	if s.pool.rest(0); len(rests()) != 0 {
		t.Errorf("%v rest, of the class that asks", rests())
	}
	if s.pool.rest(1); len(rests()) != 0 {
		t.Errorf("%v rest too early", rests())
	}
	now = now.Add(restPause - 1)
	if s.pool.rest(1); len(rests()) != 0 {
		t.Errorf("%v rest too early", rests())
	}
	now++
	if s.pool.rest(1); !slices.Equal(rests(), []slab.Segment{{Server: 0, N: 1}, {Server: 1, N: 3}}) {
		t.Errorf("%v rest", rests())
	}
	if left := s.pool.nodes.free[0].Len(anywhere); left != 2*n {
		t.Errorf("%d nodes are free, want those of the two segments for tombstones, %d", left, 2*n)
	}
}

// The only memory server of a store has all of it.
func TestShareOfTheOnlyServer(t *testing.T) {
	s, _ := lossy()
	s.mem.memory, s.mem.space.Servers = s.mem.memory[:1], 1
	if list := s.pool.shares(); len(list) != 1 || list[0].Permille != 1000 {
		t.Errorf("%+v", list)
	}
}

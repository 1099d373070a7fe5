package meta

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	calls "github.com/rdmalab/rdmalab/store/rpc"
	"github.com/rdmalab/rdmalab/store/slab"
)

// A memory server is taken for a part of the store only if it has that part, of a store with the
// same format, copies and servers, and the same one as the servers before it.
func TestPartsOfOtherStores(t *testing.T) {
	space := layout.Space{Servers: 2, Shortcuts: 4, Entries: layout.Counts{4}, Backups: 1}
	for name, c := range map[string]struct {
		change   func(b *layout.Superblock)
		replicas int
		first    bool
		want     string // part of the error; "": none
	}{
		"as it is":                {func(*layout.Superblock) {}, 0, false, ""},
		"copies as configured":    {func(*layout.Superblock) {}, 2, false, ""},
		"fewer copies configured": {func(*layout.Superblock) {}, 1, false, "a store with 2 copies"},
		"more copies configured":  {func(*layout.Superblock) {}, 3, false, "a store with 2 copies"},
		"other format":            {func(b *layout.Superblock) { b.Format = layout.Keyed }, 0, true, "another node format"},
		"other part":              {func(b *layout.Superblock) { b.Server = 0 }, 0, true, "part 1 of a store on 2 servers"},
		"more servers":            {func(b *layout.Superblock) { b.Space.Servers = 3 }, 0, true, "part 2 of a store on 3 servers"},
		"unknown space, first":    {func(b *layout.Superblock) { b.Space = layout.Space{} }, 0, true, ""},
		"other store":             {func(b *layout.Superblock) { b.Store++ }, 0, false, "another store"},
		"other space":             {func(b *layout.Superblock) { b.Space.Shortcuts++ }, 0, false, "another store"},
		"other store, first":      {func(b *layout.Superblock) { b.Store++; b.Space.Shortcuts++ }, 0, true, ""},
	} {
		s, _ := lossy()
		s.mem.cfg.Format, s.mem.cfg.Replicas = layout.Hardened, c.replicas
		s.mem.space, s.mem.store = space, 5
		b := layout.Superblock{Format: layout.Hardened, Server: 1, Space: space, Store: 5}
		c.change(&b)
		err := s.mem.belongs(1, &b, c.first)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// An OpHello is of a client that the server knows if it names its number, or the owner number of its
// connections.
func TestHelloOfAKnownClient(t *testing.T) {
	for _, c := range []struct {
		had, client, owner uint32
		want               bool
	}{{5, 7, 0, true}, {5, 8, 5, true}, {5, 8, 6, false}, {5, 8, 0, false}, {0, 8, 0, false}, {0, 7, 5, true}} {
		cl := &client{id: 7, owner: c.had}
		if got := cl.introduces(7, &rpc.Request{Op: rpc.OpHello, Client: c.client, Owner: c.owner}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The nodes of a lost key become free when the directory does not name them any more, except those in
// lost memory.
func TestNodesOfALostKeyAreRetired(t *testing.T) {
	s, _ := lossy()
	at := func(server, n int) layout.Location {
		return layout.Location{Handle: s.mem.space.First(server, 0) + layout.Handle(n), Version: 1}
	}
	e := &entry{key: 1, lost: true, passed: []layout.Location{at(1, 0), {}, at(0, 1)}, at: at(1, 2)}
	for _, l := range []layout.Location{at(1, 1), at(0, 2)} { // reported nodes, the second one in lost memory
		s.pool.nodes.held.put(l.Handle, held{client: 5, version: 1, entry: e, void: l == at(0, 2)})
		e.reported = append(e.reported, reported{at: l, client: 5})
	}
	before := s.pool.nodes.held.len()
	s.chains.strip(e)
	if n := s.pool.nodes.free[0].Len(anywhere); n != 3 || s.pool.nodes.free[0].Len(0) != 0 || len(e.passed) != 0 || !e.at.IsZero() || before-s.pool.nodes.held.len() != 1 || len(e.reported) > 0 {
		t.Errorf("%d nodes are free, %d of them in lost memory, want 3 and none; of %d that were held %d are; %+v", n, s.pool.nodes.free[0].Len(0), before, s.pool.nodes.held.len(), e)
	}
}

// So do those of a deleted key, when the directory does not name it any more: the nodes that clients
// have reported come before the tombstone, or are in no chain.
func TestReportedNodesOfADeletedKeyAreRetired(t *testing.T) {
	s, cl := lossy()
	at := func(n int) layout.Location {
		return layout.Location{Handle: s.mem.space.First(1, 0) + layout.Handle(n), Version: 1}
	}
	e := &entry{key: 1, dead: true, recorded: true, mirrored: true, at: at(2), reported: []reported{{at: at(1), client: cl.id}}}
	s.chains.keys[1] = e
	s.pool.nodes.held.put(at(1).Handle, held{client: cl.id, version: 1, entry: e})
	s.chains.settle(e)
	if n := s.pool.nodes.free[0].Len(1); n != 2 || s.chains.keys[1] != nil || s.pool.heldAs(cl.id, at(1)) {
		t.Errorf("%d nodes are free, want the tombstone and the reported one; %+v", n, e)
	}
}

// The shares of the memory servers are equal, or as the servers were weighed last. They count the
// nodes of each server and its free ones.
func TestSharesOfServers(t *testing.T) {
	s, _ := lossy()
	s.pool.retire(layout.Location{Handle: s.mem.space.First(1, 0), Version: 1})
	for _, c := range []struct {
		weights []int64
		want    [2]uint64
	}{{nil, [2]uint64{500, 500}}, {[]int64{0, 0}, [2]uint64{500, 500}}, {[]int64{3, 1}, [2]uint64{750, 250}}, {[]int64{0, 1}, [2]uint64{0, 1000}}} {
		s.pool.balance.weights = c.weights
		list := s.pool.shares()
		if len(list) != 2 || list[0] != (rpc.Share{Nodes: 4, Permille: c.want[0]}) || list[1] != (rpc.Share{Nodes: 4, Free: 1, Permille: c.want[1]}) {
			t.Errorf("weights %v: %+v", c.weights, list)
		}
	}
}

// ticking is a runtime whose clock the test moves.
type ticking struct {
	still
	now   *clock.Time
	sleep func()
}

func (r ticking) Now() clock.Time     { return *r.now }
func (r ticking) Sleep(time.Duration) { r.sleep() }

// A client finds no free node. Others are asked for theirs: those that have nodes and have not been
// asked yet, do not answer, or are not known.
func TestNodesOfOthersAreAskedFor(t *testing.T) {
	const lease, self, other = 2 * time.Second, 7, 8
	asked := clock.Time(0).Add(lease/2 + 2*restPause)
	for name, c := range map[string]struct {
		fixed   bool
		holder  uint32
		known   bool
		heard   clock.Time
		after   clock.Time // the time since the first request without a free node
		restIn  time.Duration
		restNow bool
		resting bool
		want    bool
	}{
		"others have nodes":                {holder: other, known: true, heard: 5, want: true},
		"all nodes are its own":            {holder: self, known: true, heard: 5},
		"others were asked, and have sent": {holder: other, known: true, heard: 1 << 40, after: asked + 1},
		"others may just be asked":         {holder: other, known: true, heard: 1 << 40, after: asked, want: true},
		"others were asked, and are quiet": {holder: other, known: true, heard: 0, after: asked + 1, want: true},
		"holder is not known":              {holder: other, after: asked + 1, want: true},
		"fixed parts":                      {fixed: true, want: true, holder: other, known: true},
		"a search comes soon":              {holder: self, known: true, restIn: restPause / 2, want: true},
		"a search comes later":             {holder: self, known: true, restIn: 2 * restPause},
		"a search was just made":           {holder: self, known: true, restIn: restPause},
		"a search is due":                  {holder: self, known: true, restNow: true},
		"a search finds what it found":     {holder: self, known: true, restIn: restPause / 2, resting: true},
	} {
		s, _ := lossy()
		now := clock.Time(time.Hour)
		s.mem.rt = ticking{now: &now}
		s.mem.cfg.Lease, s.mem.space.Shared = lease, !c.fixed
		s.pool.segments.Table = slab.NewTable(2, 4)
		if c.resting {
			s.pool.segments.Set(slab.Segment{N: 1}, 1)
			s.pool.segments.Rest(slab.Segment{N: 1}, 1)
		}
		s.pool.clients = map[uint32]*client{self: {id: self}}
		if c.known {
			s.pool.clients[c.holder] = &client{id: c.holder, heard: now + c.heard}
			if c.heard == 0 {
				s.pool.clients[c.holder].heard = now
			}
		}
		for h := range s.pool.nodes.held.all() {
			s.pool.nodes.held.put(h, held{client: c.holder, version: 1})
		}
		if c.after > 0 {
			s.pool.segments.pressed[0] = now
			now += c.after
		}
		if c.restIn > 0 || c.restNow {
			s.pool.segments.restAt = now.Add(c.restIn)
		}
		if got := s.pool.press(0, self); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if s.pool.segments.scarceUntil != now.Add(lease) {
			t.Errorf("%s: nodes are scarce until %v", name, s.pool.segments.scarceUntil)
		}
	}
}

// A server that ends waits until the inquiry that is going on has ended, and for no other.
func TestEndOfAnInquiry(t *testing.T) {
	s, now, slept := alone(), clock.Time(0), 0
	q := &inquiry{}
	s.mem.rt = ticking{now: &now, sleep: func() {
		if slept++; slept == 3 {
			q.mu.Lock()
			q.asking = false
			q.mu.Unlock()
		}
	}}
	if q.wait(&s.mem); slept != 0 {
		t.Error("the server waits for no inquiry")
	}
	q.asking = true
	if q.wait(&s.mem); slept != 3 || q.asking {
		t.Errorf("after %d pauses the inquiry goes on: %v", slept, q.asking)
	}
}

// What is due at a time is done when the time has come.
func TestSweepWhenItIsDue(t *testing.T) {
	for at, want := range map[clock.Time]bool{9: true, 10: true, 11: false} {
		s, now := alone(), clock.Time(10)
		s.mem.rt = ticking{now: &now}
		s.mem.memory[0].blank = false
		s.front, s.chains.sweepDue, s.chains.sweepAt = new(calls.Server), true, at
		if s.keep(now); s.chains.sweepDue == want {
			t.Errorf("a sweep that is due at %d is done at %d: %v", at, now, !s.chains.sweepDue)
		}
	}
}

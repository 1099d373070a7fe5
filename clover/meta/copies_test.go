package meta

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// fixed makes a store with copies in which the smallest class has all of the memory.
func fixed(c *Config) { c.Replicas, c.Shares = 2, [layout.Classes]int{1} }

// A server is filled with all of its copies, however many nodes there are.
func TestAllNodesAreFilled(t *testing.T) {
	withMemory(t, 2, fixed, func(_ *pair, s *Server, _ verbs.Runtime) {
		n, first := s.mem.space.Entries[0], s.mem.space.First(0, 0)
		size := layout.Class(0).Size()
		if n*size < 2*bulkLen || n*size%bulkLen == 0 {
			t.Errorf("%d nodes: too few", n)
		}
		if err := s.pool.holdRun(0, first, n); err != nil || s.pool.nodes.held.of(first) != (held{client: orphan, void: true}) {
			t.Errorf("a node without a header is %+v, %v", s.pool.nodes.held.of(first), err)
		}
		from, _ := s.mem.space.Place(first)
		to := s.mem.space.Copy(from, 1)
		want := make([]byte, n*size)
		for k := range n {
			b := want[k*size:]
			copy(b[:size], bytes.Repeat([]byte{byte(k), byte(k >> 8)}, size/2))
			for i := range 8 {
				b[i] = byte(layout.Header(layout.Version(1+k%200)) >> (8 * i))
			}
		}
		if err := s.mem.writeBulk(0, from.Offset, want); err != nil {
			t.Error(err)
		}
		s.mem.memory[1].out = true
		if err := s.pool.fill(1, 1); err != nil {
			t.Error(err)
		}
		if got, err := s.mem.readBulk(1, to.Offset, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the copies differ: %v", err)
		}
		if err := s.pool.holdRun(0, first, n); err != nil || s.pool.nodes.held.len() != n {
			t.Error(err)
		}
		for k := range n {
			if h := s.pool.nodes.held.of(first + layout.Handle(k)); h != (held{client: orphan, version: layout.Version(1 + k%200)}) {
				t.Errorf("node %d is %+v", k, h)
				break
			}
		}
	})
}

// A copy is filled from the nearest later one that counts, or else from the nearest earlier one. If none counts,
// it is erased.
func TestCopyFromWhichAServerIsFilled(t *testing.T) {
	for _, c := range []struct {
		out  []int
		j    int
		want byte
	}{
		{[]int{0}, 0, 2},
		{[]int{0, 1}, 0, 3},
		{[]int{1}, 1, 3},
		{[]int{1, 2}, 1, 1},
		{[]int{0, 1}, 1, 3},
		{[]int{2}, 2, 2},
		{[]int{1, 2}, 2, 1},
		{[]int{0, 2}, 2, 2},
		{[]int{0, 1, 2}, 1, 0},
	} {
		withMemory(t, 3, func(c *Config) { c.Replicas = 3 }, func(_ *pair, s *Server, _ verbs.Runtime) {
			p, _ := s.mem.space.Place(s.pool.segment(0, 0, 0))
			for j := range 3 {
				q := s.mem.space.Copy(p, j)
				if err := s.mem.writeBulk(q.Server, q.Offset, bytes.Repeat([]byte{byte(j + 1)}, p.Len)); err != nil {
					t.Error(err)
				}
			}
			for _, i := range c.out {
				s.mem.memory[i].out = true
			}
			if err := s.pool.fill(c.j, c.j); err != nil {
				t.Error(err)
			}
			q := s.mem.space.Copy(p, c.j)
			if got, err := s.mem.readBulk(q.Server, q.Offset, p.Len); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{c.want}, p.Len)) {
				t.Errorf("%+v: %d, %v", c, got[0], err)
			}
		})
	}
}

// If the first copy of a node does not count, its header and key are read from another one.
func TestHeadOfANodeWithCopies(t *testing.T) {
	withMemory(t, 2, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
		s.mem.memory[0].out = true
		l := node(s, 0, 0, 1)
		if err := put(s, l, layout.Header(5), 77); err != nil {
			t.Error(err)
		}
		if header, key, err := s.chains.nodeHead(l); err != nil || header != layout.Header(5) || key != 77 {
			t.Errorf("%v, key %d, %v", header, key, err)
		}
	})
}

// As long as the first copy counts, it is the one that is read, of a node as of the table of segments.
func TestFirstCopiesAreRead(t *testing.T) {
	withMemory(t, 2, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
		l := node(s, 0, 0, 1)
		table := s.mem.space.Table(0)
		for j := range 2 {
			s.mem.memory[1-j].out = true // only copy j is written
			err := put(s, l, layout.Header(layout.Version(5+j)), uint64(77+j))
			q := s.mem.space.Copy(table, j)
			q.Offset += 3
			if err := errors.Join(err, s.mem.writeBulk(q.Server, q.Offset, []byte{byte(1 + j)})); err != nil {
				t.Error(err)
			}
			s.mem.memory[1-j].out = false
		}
		if header, key, err := s.chains.nodeHead(l); err != nil || header != layout.Header(5) || key != 77 {
			t.Errorf("%v, key %d, %v", header, key, err)
		}
		if err := s.pool.holdRun(0, l.Handle, 1); err != nil || s.pool.nodes.held.of(l.Handle).version != 5 {
			t.Errorf("%+v, %v", s.pool.nodes.held.of(l.Handle), err)
		}
		if err := s.pool.readTable(0); err != nil || s.pool.segments.Row(0)[3] != 1 {
			t.Errorf("%v, %v", s.pool.segments.Row(0)[:4], err)
		}
	})
}

// When the copies of some nodes are all lost, the keys whose chains lead there are lost before a superblock has the
// new view. All clients are fenced then, so the orphan's nodes wait for no fence.
func TestViewWithoutSomeNodes(t *testing.T) {
	for _, gone := range []bool{true, false} {
		withMemory(t, 3, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
			cl, n := holder(t, s, 2, 1)
			e := opened(t, s, cl, 1, n[0])
			next := node(s, 0, 5, 1)
			if err := put(s, n[0], layout.Superseded(n[0].Version, next), 1); err != nil {
				t.Error(err)
			}
			fence, epoch := s.pool.fenceTo(s.pool.nextID), s.pool.epoch
			s.pool.orphansAfter = fence
			s.mem.memory[2].since, s.mem.memory[2].blank = 9, false
			s.mem.memory[0].out, s.mem.memory[1].out = gone, gone
			s.mem.view = 1<<24 - 1
			if err := s.members.settleView(nil, false); err != nil {
				t.Error(err)
			}
			if e.lost != gone || s.pool.void != gone || (s.pool.orphansAfter == nil) != gone {
				t.Errorf("gone %v: lost %v, void %v, fence %v", gone, e.lost, s.pool.void, s.pool.orphansAfter)
			}
			super, err := s.mem.superblock(2)
			if m := s.mem.memory[2]; err != nil || super.View != 0 || s.mem.view != 0 || m.since != 0 || s.pool.epoch != epoch+1 || s.pool.turnedAt == 0 || s.pool.turnedAt > rt.Now() {
				t.Errorf("view %d, written %d, %v; %+v, epoch %d since %v", s.mem.view, super.View, err, m, s.pool.epoch, s.pool.turnedAt)
			}
		})
	}
}

// A restarted metadata server of a store with copies finds all keys, has no slot twice, and has freed what no chain has.
func TestRestartWithCopies(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		withMemory(t, 2, func(c *Config) { c.Replicas = replicas }, func(r *pair, s *Server, _ verbs.Runtime) {
			cl, n := holder(t, s, 1, 4)
			for k := range 3 {
				opened(t, s, cl, uint64(k+1), n[k])
			}
			r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
				if len(s.chains.keys) != 3 || len(s.chains.slots)+3 != s.mem.space.Slots() || s.pool.orphans || s.pool.nodes.held.len() != 0 || s.mem.stats.Recovered != 3 {
					t.Errorf("%d copies: %d keys, %d of %d slots, orphans %v, %d held", replicas, len(s.chains.keys), len(s.chains.slots), s.mem.space.Slots(), s.pool.orphans, s.pool.nodes.held.len())
				}
				for k := range 3 {
					if e := s.chains.keys[uint64(k+1)]; e == nil || e.at != n[k] || isFree(s, n[k].Handle) || slices.Contains(s.chains.slots, e.slot) {
						t.Errorf("%d copies: key %d: %+v", replicas, k+1, e)
					}
				}
				if !isFree(s, n[3].Handle) {
					t.Errorf("%d copies: a node of no chain is not free", replicas)
				}
			})
		})
	}
}

// A directory may be longer than a bulk transfer.
func TestRestartWithALongDirectory(t *testing.T) {
	withMemory(t, 2, func(c *Config) { c.Keys = 20000 }, func(r *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 3)
		slots := []uint32{1, 2*4096 + 1, 19999}
		for k, slot := range slots {
			s.chains.slots = []uint32{slot}
			opened(t, s, cl, uint64(k+1), n[k])
		}
		r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
			for k, slot := range slots {
				if e := s.chains.keys[uint64(k+1)]; e == nil || e.lost || e.at != n[k] || e.slot != slot {
					t.Errorf("key %d: %+v", k+1, e)
				}
			}
		})
	})
}

// A memory server has lost its memory when the metadata server starts. Its mirrors say which keys it had: they are lost,
// and keep their slots. The first segment of the server is for tombstones again.
func TestRestartAfterALoss(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		cl, n := holder(t, s, 0, 2)
		_, other := holder(t, s, 1, 1)
		opened(t, s, cl, 1, n[0])
		opened(t, s, cl, 2, n[1])
		opened(t, s, cl, 3, other[0])
		r.Host("ms0").Crash()
		r.restart(0, rt)
		r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
			if len(s.chains.keys) != 3 || len(s.chains.slots)+3 != s.mem.space.Slots() || !s.chains.keys[1].lost || !s.chains.keys[2].lost || s.chains.keys[3].lost || s.mem.stats.Losses != 1 {
				t.Errorf("%d keys, %d of %d slots, %+v", len(s.chains.keys), len(s.chains.slots), s.mem.space.Slots(), s.mem.stats)
			}
			if row := s.pool.segments.Row(0); row[0] != 1 || s.mem.memory[0].generation == 0 {
				t.Errorf("segments %v, generation %d", row[:4], s.mem.memory[0].generation)
			}
			mirror, _ := s.mem.space.Mirror(int(s.chains.keys[1].slot))
			if record(t, s, mirror) != (layout.KeyRecord{Key: 1, Lost: true}) {
				t.Errorf("mirror %+v", record(t, s, mirror))
			}
		})
	})
}

// A metadata server cannot take the next incarnation number if the superblock of a server is gone, which is then to be formatted, or if
// a server does not answer. The present number stays.
func TestNextIncarnationWithoutAServer(t *testing.T) {
	for _, crash := range []bool{true, false} {
		withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
			if crash {
				r.crash(s, 1)
			} else if err := s.mem.writeBulk(1, 0, make([]byte, layout.SuperblockLen)); err != nil {
				t.Error(err)
			}
			owner, self := s.mem.owner, s.mem.self
			s.pool.nextID = s.pool.endID - 1
			if n, err := s.number(); err == nil || s.mem.owner != owner || s.mem.self != self || s.mem.memory[1].blank == crash {
				t.Errorf("number %#x, %v, incarnation %d, own number %#x, %+v", n, err, s.mem.owner, s.mem.self, s.mem.memory[1])
			}
			// server 0 may have the next number already: this metadata server has written it
			err := s.mem.openWays(0, s.mem.deadline())
			if _, read := s.mem.superblock(0); err != nil || read != nil || s.mem.deposed {
				t.Errorf("%v, %v, deposed %v", err, read, s.mem.deposed)
			}
		})
	}
}

// Generations has what the servers were made with, and 0 for those that do not count.
func TestGenerationsOfServers(t *testing.T) {
	s, _ := lossy()
	s.mem.memory[0].generation, s.mem.memory[1].generation, s.mem.memory[0].out = 5, 6, true
	if made, counted := s.Generations(); !slices.Equal(made, []uint64{5, 6}) || !slices.Equal(counted, []uint64{0, 6}) {
		t.Errorf("%v, %v", made, counted)
	}
}

// Servers are brought back when the memory services of those that count have just answered. If they have not, the next
// question comes later; if their answer is old, they are asked again at once.
func TestWhenServersAreBroughtBack(t *testing.T) {
	for name, c := range map[string]struct {
		early, known, ran, fresh bool
		back, later, asks        bool
	}{
		"too early":       {early: true, known: true, ran: true, fresh: true},
		"not asked":       {asks: true},
		"answered":        {known: true, ran: true, fresh: true, back: true},
		"not answered":    {known: true, fresh: true, later: true},
		"answered before": {known: true, ran: true, asks: true},
	} {
		s, now := alone(), clock.Time(1000)
		s.mem.cfg.Lease = time.Hour
		s.mem.memory[1].out, s.members.backAt = false, now
		if c.early {
			s.members.backAt++
		}
		before := s.members.backAt
		s.members.services = inquiry{ended: c.known, ran: c.ran, until: now}
		if !c.fresh {
			s.members.services.until--
		}
		if got := s.members.mayBringBack(now); got != c.back || (s.members.backAt == now.Add(4*reachTimeout)) != c.later || !c.later && s.members.backAt != before || s.members.services.asking != c.asks {
			t.Errorf("%s: %v, not before %v, asks %v", name, got, s.members.backAt, s.members.services.asking)
		}
	}
}

// The memory service of a server that is out is not asked; one that counts is asked when it is due.
func TestWhichServicesAreAsked(t *testing.T) {
	for name, c := range map[string]struct {
		out  bool
		in   clock.Time
		asks bool
	}{"due": {asks: true}, "later": {in: 1}, "out": {out: true}} {
		s, _ := lossy()
		s.mem.space.Backups, s.members.change = 1, new(change)
		s.mem.cfg.Servers = alone().mem.cfg.Servers
		s.members.watched = make([]watched, len(s.mem.memory))
		now := clock.Time(100)
		w := &s.members.watched[0]
		w.askAt, w.missed, w.asked, s.members.watched[1].askAt, s.mem.memory[0].out = now+c.in, 1, 7, clock.Never, c.out
		if err := s.members.watchServices(now); err != nil || w.asking != c.asks || (w.missed == 0) != c.out || w.asked != map[bool]clock.Time{true: 100, false: 7}[c.asks] && !c.out || c.out && w.asked != 0 {
			t.Errorf("%s: asks %v, %d missed, asked at %d, %v", name, w.asking, w.missed, w.asked, err)
		}
	}
}

// The connections to all servers are broken whose services hang, or end no connections during a change.
func TestAllServersThatDoNotServe(t *testing.T) {
	up := func(s *Server) (list []bool) {
		for i := range s.mem.memory {
			list = append(list, s.mem.connected(i))
		}
		return list
	}
	withMemory(t, 4, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
		rt.Sleep(2 * servicePatience)
		for i := range s.members.watched {
			if s.members.watched[i].askAt = clock.Never; i%2 == 0 {
				s.members.watched[i].missed, s.members.watched[i].silent = leastMissed, 1
			} else {
				s.members.watched[i].heard = 2
			}
		}
		if err := s.members.watchServices(rt.Now()); err != nil || !slices.Equal(up(s), []bool{false, true, false, true}) {
			t.Errorf("hung: connected %v, %v", up(s), err)
		}
	})
	withMemory(t, 3, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		r.Host("ms1").Crash()
		r.Host("ms2").Crash()
		s.mem.memory[0].out = true // no server that counts serves
		s.pool.fences.Add(s.pool.nextID)
		s.members.change = &change{asked: rt.Now()}
		rt.Sleep(servicePatience)
		if err := s.members.breakUnserved(); err != nil || !slices.Equal(up(s), []bool{true, true, true}) {
			t.Errorf("none serves: connected %v, %v", up(s), err)
		}
		s.mem.memory[0].out, s.mem.memory[2].out = false, true // one that does not count is left alone
		if err := s.members.breakUnserved(); err != nil || !slices.Equal(up(s), []bool{true, false, true}) {
			t.Errorf("one is out: connected %v, %v", up(s), err)
		}
		s.pool.fences.Close()
	})
	withMemory(t, 3, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		r.Host("ms1").Crash()
		r.Host("ms2").Crash()
		s.pool.fences.Add(s.pool.nextID)
		began := rt.Now()
		s.members.change = &change{asked: began}
		rt.Sleep(servicePatience / 2)
		if err := s.members.breakUnserved(); err != nil || !slices.Equal(up(s), []bool{true, true, true}) {
			t.Errorf("too early: connected %v, %v", up(s), err)
		}
		rt.Sleep(servicePatience / 2)
		now := rt.Now()
		if err := s.members.breakUnserved(); err != nil || !slices.Equal(up(s), []bool{true, false, false}) || s.members.change.asked != now {
			t.Errorf("connected %v, waiting since %v, %v", up(s), s.members.change.asked.Sub(began), err)
		}
		s.pool.fences.Close()
	})
}

// A server that is out and connected is left alone until it may come back.
func TestAServerThatIsOutAndConnected(t *testing.T) {
	withMemory(t, 2, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
		now := rt.Now()
		s.mem.memory[1].out, s.mem.memory[1].marked, s.mem.view = true, 3, 3
		s.members.backAt, s.members.probeAt = now.Add(time.Hour), now.Add(time.Hour)
		for i := range s.members.watched {
			s.members.watched[i].askAt = clock.Never
		}
		if s.watchMemory(now); s.mem.memory[1].marked != 3 || rt.Now() != now || s.members.change != nil {
			t.Errorf("%+v, after %v", s.mem.memory[1], rt.Now().Sub(now))
		}
	})
}

// The weights of the memory servers are their free room, divided by how much slower than the fastest one they are.
func TestWeightsOfServers(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		replicas int
		took     [3]time.Duration // before
		out      []int
		want     [3]int64 // of a server's room, in parts of 1/slowest
	}{
		"alike":                      {1, [3]time.Duration{10 * ms, 10 * ms, 10 * ms}, nil, [3]int64{64, 64, 64}},
		"the first one is fastest":   {1, [3]time.Duration{10 * ms, 42 * ms, 1000 * ms}, nil, [3]int64{64, 16, 1}},
		"the last one is fastest":    {1, [3]time.Duration{42 * ms, 82 * ms, 10 * ms}, nil, [3]int64{16, 8, 64}},
		"one is much too slow":       {1, [3]time.Duration{1000 * ms, 10 * ms, 10 * ms}, nil, [3]int64{1, 64, 64}},
		"the first one is out":       {1, [3]time.Duration{10 * ms, 10 * ms, 21 * ms}, []int{0}, [3]int64{0, 64, 32}},
		"copies on a slow server":    {2, [3]time.Duration{10 * ms, 10 * ms, 82 * ms}, nil, [3]int64{64, 8, 8}},
		"the slow one is out":        {2, [3]time.Duration{10 * ms, 10 * ms, 82 * ms}, []int{2}, [3]int64{64, 64, 64}},
		"some have no copy any more": {2, [3]time.Duration{10 * ms, 10 * ms, 82 * ms}, []int{0, 1}, [3]int64{0, 64, 64}},
	} {
		withMemory(t, 3, func(cfg *Config) { cfg.Replicas, cfg.Balance = c.replicas, true }, func(_ *pair, s *Server, rt verbs.Runtime) {
			s.mem.hand = &handoff{s: s, gate: rt.NewGate()} // the tables are lent during the READs
			for _, i := range c.out {
				s.mem.memory[i].out = true
			}
			now := rt.Now()
			b := &s.pool.balance
			b.took = slices.Clone(c.took[:])
			b.at = now + 1
			if s.pool.weigh(now); b.weights != nil {
				t.Errorf("%s: weighed too early", name)
			}
			b.at = now
			s.pool.weigh(now)
			for i := range c.want {
				if want := int64(s.pool.room(i)) * c.want[i]; len(b.weights) != 3 || b.weights[i] != want || (b.took[i] == 0) != slices.Contains(c.out, i) {
					t.Errorf("%s: weights %v, room %d, %v, want %v", name, b.weights, s.pool.room(i), b.took, c.want)
					break
				}
			}
			if b.at != now.Add(s.mem.cfg.probe()) {
				t.Errorf("%s: weighed again at %v", name, b.at)
			}
		})
	}
	withMemory(t, 3, func(cfg *Config) { cfg.Balance = true }, func(r *pair, s *Server, rt verbs.Runtime) {
		r.Host("ms1").Crash() // its connection still looks well
		s.pool.balance.took = []time.Duration{ms, ms, ms}
		s.pool.weigh(rt.Now())
		if b := &s.pool.balance; b.took[0] == 0 || b.took[1] != 0 || b.weights[0] == 0 || b.weights[1] != 0 {
			t.Errorf("%v, %v", b.took, b.weights)
		}
	})
}

// The periodic work is done with request threads, too, and entries that are due are handled without a pause.
func TestMainThreadBesideRequestThreads(t *testing.T) {
	withMemory(t, 2, func(c *Config) { c.Threads = 2 }, func(_ *pair, s *Server, rt verbs.Runtime) {
		const many = 20 * lanes
		for range many {
			s.chains.tidy.due = append(s.chains.tidy.due, &entry{key: 9})
		}
		s.pool.epoch = 3
		l := node(s, 1, 4, 1)
		s.pool.nodes.free[0].Remove(func(x layout.Location) bool { return x.Handle == l.Handle })
		s.pool.nodes.worn = []worn{{l.Handle, 1}}
		rt.Go("end", func() {
			rt.Sleep(keepEvery / 2)
			if left := len(s.chains.tidy.due) - s.chains.tidy.done; left != 0 {
				t.Errorf("%d of %d entries are due", left, many)
			}
			rt.Sleep(2 * keepEvery)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := s.Serve(); err != nil || !isFree(s, l.Handle) {
			t.Errorf("%v, worn %v", err, s.pool.nodes.worn)
		}
	})
}

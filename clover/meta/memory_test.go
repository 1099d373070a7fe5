package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// withMemory calls f with a metadata server that does not serve, on a rack in virtual time with n memory
// servers. Tests call the steps of its work, and look at the memory.
func withMemory(t *testing.T, n int, change func(c *Config), f func(r *pair, s *Server, rt verbs.Runtime)) {
	t.Helper()
	r, ran := newPairOf(t, 0, n), false
	if change != nil {
		change(&r.cfg)
	}
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) { f(r, s, rt); ran = true })
	r.run()
	if !ran {
		t.Error("the test did not run")
	}
}

func withCopies(c *Config) { c.Replicas = 2 }

// put writes a header and a key to the copies of a node that count.
func put(s *Server, l layout.Location, header layout.Word, key uint64) error {
	p, _ := s.mem.space.Place(l.Handle)
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(header)), key)
	for _, q := range s.mem.copies(p) {
		if err := s.mem.writeBulk(q.Server, q.Offset, b); err != nil {
			return err
		}
	}
	return nil
}

// record reads a record or a mirror.
func record(t *testing.T, s *Server, p layout.Place) (rec layout.KeyRecord) {
	t.Helper()
	b, err := s.mem.readBulk(p.Server, p.Offset, layout.RecordLen)
	if err != nil {
		t.Error(err)
		return rec
	}
	rec, _ = layout.ParseKeyRecord(b)
	return rec
}

// holder adds a client that holds n nodes of class 0 of a server.
func holder(t *testing.T, s *Server, server, n int) (*client, []layout.Location) {
	t.Helper()
	cl := &client{id: 7, heard: s.mem.rt.Now(), epoch: s.pool.epoch}
	s.pool.clients[cl.id] = cl
	list := s.pool.give(cl.id, 0, server, n, 0, nil)
	if len(list) != n {
		t.Errorf("%d nodes, want %d", len(list), n)
	}
	return cl, list
}

// opened opens a key with a node that a client holds, and returns its entry.
func opened(t *testing.T, s *Server, cl *client, key uint64, at layout.Location) *entry {
	t.Helper()
	var a rpc.Answer
	err := put(s, at, layout.Header(at.Version), key)
	if s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: key, At: at}, &a); err != nil || a.Status != rpc.OK || s.chains.keys[key] == nil {
		t.Errorf("key %d: %v, %v", key, a.Status, err)
		return new(entry)
	}
	return s.chains.keys[key]
}

// crash ends a memory server and its connections to the metadata server.
func (r *pair) crash(s *Server, i int) {
	r.Host(fmt.Sprint("ms", i)).Crash()
	_ = s.mem.breakWays(i)
}

// restart starts a memory server that has crashed, with empty memory.
func (r *pair) restart(i int, rt verbs.Runtime) {
	name := fmt.Sprint("ms", i)
	r.Host(name).Restart()
	r.memory(name)
	rt.Sleep(time.Millisecond)
}

// A key is opened: its record, mirror and shortcut name it. Then its client reports further nodes. Each of
// them is known to come after the one before, so no header is read, and what is superseded is free.
func TestReportedNodesAreFollowed(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 5)
		e := opened(t, s, cl, 1, n[0])
		p, _ := s.mem.space.Shortcut(int(e.slot))
		b, err := s.mem.readBulk(p.Server, p.Offset, layout.ShortcutLen)
		if err != nil || layout.Word(binary.LittleEndian.Uint64(b)) != n[0].Stamped(s.pool.epoch) {
			t.Errorf("shortcut %x, %v", b, err)
		}
		chain := func(from, to int) {
			for i := from; i < to; i++ {
				if err := errors.Join(put(s, n[i], layout.Superseded(n[i].Version, n[i+1]), 1), put(s, n[i+1], layout.Header(n[i+1].Version), 1)); err != nil {
					t.Error(err)
				}
			}
		}
		chain(0, 2)
		walked := s.mem.stats.Walked
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, Heard: s.pool.clock, New: n[1]}})
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, Heard: s.pool.clock, New: n[2]}})
		s.chains.advance(false)
		rec, _ := s.mem.space.Record(int(e.slot))
		if e.at != n[2] || len(e.reported) != 0 || s.mem.stats.Walked != walked || len(s.mem.walk.behind) != 0 || record(t, s, rec).At != n[2] {
			t.Errorf("%+v after %d headers, %d behind, record %+v", e, s.mem.stats.Walked-walked, len(s.mem.walk.behind), record(t, s, rec))
		}
		for _, l := range n[:2] {
			if _, held := s.pool.nodes.held.at(l.Handle); held || !isFree(s, l.Handle) {
				t.Errorf("node %v is not free", l)
			}
		}
		chain(2, 4)
		e.by = cl.id + 1
		s.chains.collect(cl.id, []rpc.Record{{Key: 1, Heard: e.since - 1, New: n[3]}}) // it may come before n[2]
		if s.chains.advance(false); e.at != n[2] || len(e.reported) != 1 || isFree(s, n[3].Handle) {
			t.Errorf("the newest known node is %v, %d reported", e.at, len(e.reported))
		}
		if s.chains.catchUp(true); e.at != n[4] || len(e.reported) != 0 || !isFree(s, n[3].Handle) {
			t.Errorf("the chain was followed to %v, not to %v; %d reported", e.at, n[4], len(e.reported))
		}
	})
}

func isFree(s *Server, h layout.Handle) (is bool) {
	for c := range s.pool.nodes.free {
		s.pool.nodes.free[c].All(func(l layout.Location) { is = is || l.Handle == h })
	}
	return is
}

// A key is lost if the memory of its newest node has no header, or that of another version. A tombstone ends
// it, and its record and mirror are erased.
func TestHeadersThatEndAKey(t *testing.T) {
	for name, c := range map[string]struct {
		header func(v layout.Version) layout.Word
		lost   bool
	}{
		"newest":                {layout.Header, false},
		"of another version":    {func(v layout.Version) layout.Word { return layout.Header(v + 1) }, true},
		"none":                  {func(layout.Version) layout.Word { return 0 }, true},
		"of the version, wrong": {func(v layout.Version) layout.Word { return layout.Header(v) | 1 }, true},
	} {
		withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
			cl, n := holder(t, s, 1, 1)
			e, walked := opened(t, s, cl, 1, n[0]), s.mem.stats.Walked
			if err := put(s, n[0], c.header(n[0].Version), 1); err != nil {
				t.Error(err)
			}
			s.chains.follow([]*entry{e}, -1)
			if e.lost != c.lost || e.ended == c.lost || (s.mem.stats.Broken == 1) != c.lost || s.mem.stats.Walked != walked+1 || isFree(s, n[0].Handle) {
				t.Errorf("%s: %+v, %d broken, %d walked", name, e, s.mem.stats.Broken, s.mem.stats.Walked-walked)
			}
		})
	}
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 1)
		e := opened(t, s, cl, 1, n[0])
		rec, _ := s.mem.space.Record(int(e.slot))
		mirror, _ := s.mem.space.Mirror(int(e.slot))
		if a, b := record(t, s, rec), record(t, s, mirror); a.At != n[0] || b != (layout.KeyRecord{Key: 1, Lost: true}) {
			t.Errorf("record %+v, mirror %+v", a, b)
		}
		if err := put(s, n[0], layout.Tombstone(n[0].Version), 1); err != nil {
			t.Error(err)
		}
		s.chains.follow([]*entry{e}, -1)
		if a, b := record(t, s, rec), record(t, s, mirror); !e.dead || !e.ended || s.chains.keys[1] != nil || a != (layout.KeyRecord{}) || b != a || !isFree(s, n[0].Handle) {
			t.Errorf("%+v, record %+v, mirror %+v", e, a, b)
		}
	})
}

// A record that is up to date is not written again.
func TestRecordThatIsUpToDate(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 1)
		e := opened(t, s, cl, 1, n[0])
		rec, _ := s.mem.space.Record(int(e.slot))
		if err := s.mem.writeBulk(rec.Server, rec.Offset, make([]byte, rec.Len)); err != nil {
			t.Error(err)
		}
		if s.chains.record([]*entry{e}); record(t, s, rec) != (layout.KeyRecord{}) || !e.recorded {
			t.Errorf("%+v was written", record(t, s, rec))
		}
		e.recorded = false
		if s.chains.record([]*entry{e}); record(t, s, rec).At != n[0] || !e.recorded {
			t.Errorf("%+v", record(t, s, rec))
		}
	})
}

// A request that finds no free node makes the server follow all chains: also one of which nothing was reported.
func TestNodesThatNoClientReported(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		opened(t, s, cl, 1, n[0])
		if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1), put(s, n[1], layout.Header(n[1].Version), 1)); err != nil {
			t.Error(err)
		}
		s.noFree(1)
		var a rpc.Answer
		if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Tombstone: true}, &a); a.Status != rpc.OK || a.N != 1 || a.Locations[0].Handle != n[0].Handle || a.Locations[0].Version <= n[0].Version {
			t.Errorf("%v, %d nodes, %v; want %v again", a.Status, a.N, a.Locations[0], n[0])
		}
	})
}

// noFree takes all free nodes of class 0 away, and gives the segments without a class to class c.
func (s *Server) noFree(c int, servers ...int) {
	s.pool.nodes.free[0].Remove(func(layout.Location) bool { return true })
	for i := range s.mem.memory {
		if len(servers) > 0 && i != servers[0] {
			continue
		}
		for {
			seg, ok := s.pool.segments.Find(i)
			if !ok {
				break
			}
			s.pool.segments.Set(seg, c)
		}
	}
}

// A byte of the table that is no class of the store means that the segment has none.
func TestClassesInATable(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		most := byte(s.mem.space.Largest()) + 1
		p := s.mem.space.Table(1)
		if err := s.mem.writeBulk(1, p.Offset, []byte{1, most - 1, most, most + 1, 255, 0}); err != nil {
			t.Error(err)
		}
		if err := s.pool.readTable(1); err != nil || !bytes.Equal(s.pool.segments.Row(1)[:6], []byte{1, most - 1, most, 0, 0, 0}) {
			t.Errorf("%v, %v", s.pool.segments.Row(1)[:6], err)
		}
	})
}

// If the server that a request names has no room, the class takes as many segments of others as it needs to
// leave the nodes for tombstones.
func TestSegmentsOfOtherServers(t *testing.T) {
	withMemory(t, 2, func(c *Config) { c.Region = 256 << 10 }, func(_ *pair, s *Server, _ verbs.Runtime) {
		s.noFree(1, 0)
		cl := &client{id: 7, heard: s.mem.rt.Now(), epoch: s.pool.epoch}
		s.pool.clients[7] = cl
		if s.mem.space.PerSegment(0) >= tombstones {
			t.Errorf("%d nodes in a segment", s.mem.space.PerSegment(0))
		}
		var a rpc.Answer
		if s.alloc(cl, &rpc.Request{Op: rpc.OpAlloc, N: 1, Near: 1}, &a); a.Status != rpc.OK || a.N != 1 || s.pool.nodes.free[0].Len(anywhere) != 2*s.mem.space.PerSegment(0)-1 {
			t.Errorf("%v, %d nodes, %d are left", a.Status, a.N, s.pool.nodes.free[0].Len(anywhere))
		}
	})
}

// A class takes also the last segment that is unused, and no more segments than it needs.
func TestSegmentsThatAClassTakes(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		n := s.mem.space.PerSegment(1)
		for _, want := range []int{n, 2 * n} { // one segment at a time
			if s.pool.growFor(1, 0, want-n+1); s.pool.nodes.free[1].Len(0) != want {
				t.Errorf("%d nodes, want %d", s.pool.nodes.free[1].Len(0), want)
			}
		}
		for s.pool.segments.Unused(0) > 1 {
			seg, _ := s.pool.segments.Find(0)
			s.pool.segments.Set(seg, 2)
		}
		if s.pool.growFor(1, 0, 3*n); s.pool.nodes.free[1].Len(0) != 3*n || s.pool.segments.Unused(0) != 0 {
			t.Errorf("%d nodes, want %d; %d segments are unused", s.pool.nodes.free[1].Len(0), 3*n, s.pool.segments.Unused(0))
		}
	})
}

// A segment gets its class in all copies of the table. If a memory server does not answer, its segments get
// none.
func TestClassOfASegmentIsWritten(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		withMemory(t, 2, func(c *Config) { c.Replicas = replicas }, func(r *pair, s *Server, _ verbs.Runtime) {
			seg, _ := s.pool.segments.Find(1)
			before := s.pool.nodes.free[2].Len(1)
			if !s.pool.grow(2) || s.pool.nodes.free[2].Len(1) != before+s.mem.space.PerSegment(2) || !s.pool.segments.Has(seg, 2) {
				t.Errorf("%d more nodes", s.pool.nodes.free[2].Len(1)-before)
			}
			for _, p := range s.mem.copies(s.mem.space.Table(1)) {
				if b, err := s.mem.readBulk(p.Server, p.Offset+seg.N, 1); err != nil || b[0] != 3 {
					t.Errorf("%d copies: server %d has %x, %v", replicas, p.Server, b, err)
				}
			}
			if replicas > 1 {
				return
			}
			s.pool.segments.Row(1)[0] = 9
			if err := s.pool.readTable(1); err != nil || s.pool.segments.Row(1)[0] != 1 || s.pool.segments.Row(1)[seg.N] != 3 {
				t.Errorf("%v, %v", s.pool.segments.Row(1), err)
			}
			for _, grows := range []bool{true, false} { // one server answers, then none
				r.Host(map[bool]string{true: "ms1", false: "ms0"}[grows]).Crash()
				unused, free := s.pool.segments.Unused(1), s.pool.nodes.free[2].Len(1)
				if got := s.pool.grow(2); got != grows || s.pool.segments.Unused(1) != unused || s.pool.nodes.free[2].Len(1) != free {
					t.Errorf("grows %v, want %v; %d segments and %d nodes of a server that does not answer", got, grows, unused-s.pool.segments.Unused(1), s.pool.nodes.free[2].Len(1)-free)
				}
			}
		})
	}
}

// A server whose memory was lost is formatted: keys with their newest node there are lost, and the records and
// mirrors of all others are there and elsewhere as before.
func TestAServerIsFormattedAgain(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		cl, n1 := holder(t, s, 1, 2)
		_, n0 := holder(t, s, 0, 2)
		moved := opened(t, s, cl, 1, n1[0]) // its record is on server 1, its newest node on server 0
		if err := errors.Join(put(s, n1[0], layout.Superseded(n1[0].Version, n0[0]), 1), put(s, n0[0], layout.Header(n0[0].Version), 1)); err != nil {
			t.Error(err)
		}
		s.chains.follow([]*entry{moved}, -1)
		stays := opened(t, s, cl, 2, n1[1])
		there := opened(t, s, cl, 3, n0[1])
		r.crash(s, 0)
		r.restart(0, rt)
		if err := s.mem.reach(0); !errors.Is(err, errLost) || !s.mem.memory[0].blank {
			t.Errorf("%v: the loss was not noticed", err)
		}
		epoch, began := s.pool.epoch, rt.Now()
		if err := s.lose(0); err != nil {
			t.Error(err)
		}
		if m := s.mem.memory[0]; s.pool.epoch != epoch+1 || s.pool.turnedAt < began || m.blank || m.down || s.mem.stats.Losses != 1 || s.mem.stats.Broken != 0 || !s.pool.clients[cl.id].stale {
			t.Errorf("%+v, %+v, epoch %d since %v", m, s.mem.stats, s.pool.epoch, s.pool.turnedAt)
		}
		if !moved.lost || !there.lost || stays.lost || !moved.at.IsZero() {
			t.Errorf("%+v, %+v, %+v", moved, stays, there)
		}
		lost := func(e *entry) layout.KeyRecord { return layout.KeyRecord{Key: e.key, Lost: true} }
		for _, e := range []*entry{moved, stays, there} {
			rec, _ := s.mem.space.Record(int(e.slot))
			mirror, _ := s.mem.space.Mirror(int(e.slot))
			want := lost(e)
			if e == stays {
				want = s.chains.recordOf(e)
			}
			if a, b := record(t, s, rec), record(t, s, mirror); a != want || b != lost(e) || rec.Server == mirror.Server {
				t.Errorf("key %d: record %+v, mirror %+v", e.key, a, b)
			}
		}
	})
}

// A server is not formatted if another store is in its memory by now. It is formatted if nothing is there, and
// left as it is if it does not answer.
func TestWhatIsFormatted(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
		if err := s.mem.writeBulk(0, 0, make([]byte, layout.SuperblockLen)); err != nil {
			t.Error(err)
		}
		if err := s.mayFormat(0); err != nil {
			t.Errorf("empty memory: %v", err)
		}
		store := s.mem.store
		s.mem.store++
		err := s.mem.writeOwner(0)
		s.mem.store = store
		if err := errors.Join(err, s.mayFormat(0)); !errors.Is(err, errDeposed) {
			t.Errorf("memory of another store: %v", err)
		}
		r.crash(s, 1)
		if s.mayFormat(1) == nil {
			t.Error("a server that does not answer may be formatted")
		}
	})
}

// The orphan's nodes are not freed before all nodes are known; a later attempt finds them.
func TestStraysAreReadLater(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		stray := node(s, 1, 3, 1)
		s.pool.nodes.free[0].Remove(func(l layout.Location) bool { return l.Handle == stray.Handle })
		if err := put(s, stray, layout.Header(9), 1); err != nil {
			t.Error(err)
		}
		if err := s.findStrays(); err != nil || s.pool.nodes.held.of(stray.Handle) != (held{client: orphan, version: 9}) || s.pool.nodes.held.len() != 1 {
			t.Errorf("%v, %+v", err, s.pool.nodes.held)
		}
		s.pool.nodes.held = heldNodes{}
		s.pool.orphans, s.pool.void, s.pool.orphansAfter, s.pool.orphansAt = true, true, nil, 0
		r.crash(s, 1)
		if s.recoverOrphans(rt.Now()); !s.pool.orphans || !s.pool.void || s.pool.orphansAt < rt.Now().Add(downPause) {
			t.Errorf("orphans %v, void %v, again at %v, now %v", s.pool.orphans, s.pool.void, s.pool.orphansAt, rt.Now())
		}
	})
}

// A metadata server that starts compares what it has read before its number with what is there after that: memory
// that is empty, or of another generation, was lost; a server that does not answer stops the start.
func TestMemoryThatChangedDuringAStart(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
		generation := s.mem.memory[0].generation
		for name, change := range map[string]func() error{
			"empty": func() error { return s.mem.writeBulk(0, 0, make([]byte, layout.SuperblockLen)) },
			"another generation": func() error {
				s.mem.memory[0].generation++
				err := s.mem.writeOwner(0)
				s.mem.memory[0].generation--
				return err
			},
		} {
			s.mem.memory[0].generation, s.mem.memory[0].marked = generation, 5
			err := change()
			if err := errors.Join(err, s.compare(s.mem.owner)); err != nil || s.mem.memory[0].generation != 0 || s.mem.memory[0].marked != 0 || s.mem.memory[1].generation == 0 {
				t.Errorf("%s: %+v, %v", name, s.mem.memory, err)
			}
		}
		s.mem.memory[0].generation = generation
		if err := errors.Join(s.mem.writeOwner(0), s.compare(s.mem.owner)); err != nil || s.mem.memory[0].generation != generation {
			t.Errorf("as before: %+v, %v", s.mem.memory, err)
		}
		r.crash(s, 1)
		if s.compare(s.mem.owner) == nil {
			t.Error("a server does not answer, and the start goes on")
		}
	})
}

// Memory of another version is no store for a server that formats.
func TestFreshStoreOverAnotherVersion(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		b, err := s.mem.readBulk(0, 0, layout.SuperblockLen)
		if err != nil {
			t.Error(err)
			return
		}
		b[6]++ // the version is in the last bytes of the magic number
		for i := range s.mem.memory {
			if err := s.mem.writeBulk(i, 0, b); err != nil {
				t.Error(err)
			}
		}
		if whole, err := s.mem.superblocks(); whole || !errors.Is(err, layout.ErrVersion) {
			t.Errorf("%v, %v", whole, err)
		}
		s.mem.cfg.Fresh = true
		if whole, err := s.mem.superblocks(); whole || err != nil {
			t.Errorf("to be formatted: %v, %v", whole, err)
		}
	})
}

// A server that is out is marked if its own superblock says so.
func TestMarksInSuperblocks(t *testing.T) {
	withMemory(t, 2, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
		s.mem.view = 3
		s.mem.memory[1].out = true
		err := errors.Join(s.mem.writeOwner(0), s.mem.writeOwner(1))
		s.mem.memory[1].out, s.mem.memory[0].marked, s.mem.memory[1].marked = false, 0, 0
		if whole, found := s.mem.superblocks(); err != nil || found != nil || !whole || s.mem.memory[0].marked != 0 || s.mem.memory[1].marked != 3 || s.mem.memory[0].out || !s.mem.memory[1].out {
			t.Errorf("%+v, %v, %v", s.mem.memory, err, found)
		}
	})
}

// A server that does not answer is not tried again before its pause is over. One that answers is reached at once
// whenever its connections end.
func TestAttemptsToReachAServer(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		for range 3 {
			_ = s.mem.breakWays(1)
			if err := s.mem.reach(1); err != nil || s.mem.memory[1].down {
				t.Errorf("%v, %+v", err, s.mem.memory[1])
			}
		}
		r.crash(s, 1)
		began := rt.Now()
		if err := s.mem.reach(1); !errors.Is(err, errDown) || !s.mem.memory[1].down || s.mem.memory[1].retryAt != rt.Now().Add(downPause) || rt.Now() == began {
			t.Errorf("%v after %v, %+v", err, rt.Now().Sub(began), s.mem.memory[1])
		}
		began = rt.Now()
		if err := s.mem.reach(1); !errors.Is(err, errDown) || rt.Now() != began {
			t.Errorf("%v after %v: another attempt", err, rt.Now().Sub(began))
		}
		s.mem.memory[1].retryAt = rt.Now()
		if err := s.mem.reach(1); !errors.Is(err, errDown) || rt.Now() == began {
			t.Errorf("%v: no attempt after the pause", err)
		}
		s.members.probeDue = false
		began = rt.Now()
		s.mem.memory[1].retryAt = began.Add(1)
		if s.watchMemory(began); rt.Now() != began {
			t.Error("an attempt before the end of the pause")
		}
		s.mem.memory[1].retryAt = began
		if s.watchMemory(began); rt.Now() == began {
			t.Error("no attempt at the end of the pause")
		}
		// at a start the metadata server waits for one that is not up yet
		began = rt.Now()
		r.At(began.Add(50*time.Millisecond), func() { r.Host("ms1").Restart(); r.memory("ms1") })
		if err := s.mem.await(1, began.Add(time.Second)); err != nil || rt.Now() < began.Add(50*time.Millisecond) {
			t.Errorf("%v after %v", err, rt.Now().Sub(began))
		}
	})
}

// The memory servers are read when a probe is due, and not before.
func TestProbesOfMemoryServers(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		withMemory(t, 2, func(c *Config) { c.Replicas = replicas }, func(_ *pair, s *Server, rt verbs.Runtime) {
			for i := range s.members.watched { // no question
				s.members.watched[i].askAt = rt.Now().Add(time.Hour)
			}
			s.mem.hand = &handoff{s: s, gate: rt.NewGate()} // READs are made with the tables lent
			for _, c := range []struct{ due, blank, reads bool }{{true, false, true}, {false, false, false}, {true, true, false}, {true, false, true}} {
				s.members.probeDue, s.members.probeAt = c.due, rt.Now().Add(time.Hour)
				for i := range s.mem.memory {
					s.mem.memory[i].blank = c.blank
				}
				if c.blank { // it would be formatted
					s.members.probeDue = false
					continue
				}
				began := rt.Now()
				s.watchMemory(began)
				if (rt.Now() > began) != c.reads || s.members.probeDue {
					t.Errorf("%d copies, %+v: the servers are read for %v; still due %v", replicas, c, rt.Now().Sub(began), s.members.probeDue)
				}
			}
			if header, _, err := s.chains.nodeHead(node(s, 1, 0, 1)); err != nil || header != 0 {
				t.Errorf("%v, %v", header, err)
			}
			s.mem.lend() // nodeHead has taken the tables back
			s.mem.regain()
		})
	}
}

// Bulk transfers of any length are whole.
func TestBulkTransfers(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		for _, n := range []int{1, 2, bulkLen - 1, bulkLen, bulkLen + 1, 3*bulkLen + 5} {
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i*7 + i>>8)
			}
			at := s.mem.space.RegionLen() / 2
			if err := s.mem.writeBulk(1, at, want); err != nil {
				t.Error(err)
			}
			if got, err := s.mem.readBulk(1, at, n); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	})
}

// When the numbers of an incarnation are used up, the superblocks have the next one. A server that is out and
// not connected is not waited for.
func TestNextIncarnationIsWritten(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		s.pool.nextID = s.pool.endID - 1
		if n, err := s.number(); err != nil || n != s.mem.owner<<incarnationBits+1 {
			t.Errorf("%#x, %v", n, err)
		}
		for i := range s.mem.memory {
			if super, err := s.mem.superblock(i); err != nil || super.Owner != s.mem.owner {
				t.Errorf("server %d: incarnation %d, want %d, %v", i, super.Owner, s.mem.owner, err)
			}
		}
	})
	withMemory(t, 2, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		r.crash(s, 1)
		s.mem.memory[1].out = true
		began := rt.Now()
		if err := s.mem.identify(); err != nil || rt.Now() > began.Add(100*time.Millisecond) {
			t.Errorf("%v after %v", err, rt.Now().Sub(began))
		}
	})
}

// When Serve returns, the inquiries of the server have ended.
func TestEndOfAServer(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		r.Host("ms1").Crash()
		s.members.services.begin(&s.mem, 300*time.Millisecond, r.cfg.Servers...)
		began := rt.Now()
		if err := errors.Join(s.Close(), s.Serve()); err != nil || s.members.services.asking || rt.Now() > began.Add(time.Second) {
			t.Errorf("%v after %v, asking %v", err, rt.Now().Sub(began), s.members.services.asking)
		}
	})
}

package meta

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// With weights, nodes for which no server is named come from the servers in proportion to them.
func TestNodesByWeight(t *testing.T) {
	s, _ := lossy()
	s.pool.nodes.held = heldNodes{}
	for n := range 4 {
		s.pool.release(node(s, 0, n, 1))
		s.pool.release(node(s, 1, n, 1))
	}
	s.pool.balance.weights = []int64{1, 3}
	on := map[bool]int{}
	for _, l := range s.pool.give(9, 0, anywhere, 4, 0, nil) {
		on[s.pool.onServer(l, 1)]++
	}
	if on[true] != 3 || on[false] != 1 {
		t.Errorf("%d nodes of the server with weight 3, %d of the other one", on[true], on[false])
	}
	if list := s.pool.give(9, 0, 0, 2, 0, nil); len(list) != 2 || !s.pool.onServer(list[0], 0) || !s.pool.onServer(list[1], 0) {
		t.Errorf("%v of a server that is named", list)
	}
}

// How long the servers take is an average of which a new READ is a quarter; the first one counts
// alone, and one that is not answered ends it.
func TestAverageOfReads(t *testing.T) {
	withMemory(t, 2, func(c *Config) { c.Balance = true }, func(_ *pair, s *Server, rt verbs.Runtime) {
		b := &s.pool.balance
		s.pool.weigh(rt.Now())
		first := b.took[0]
		if first <= 0 || first > time.Millisecond || len(b.took) != 2 || len(b.weights) != 2 {
			t.Errorf("took %v", b.took)
		}
		b.at = 0
		b.took[0] += 40 * time.Millisecond
		if s.pool.weigh(rt.Now()); b.took[0] < first+29*time.Millisecond || b.took[0] > first+31*time.Millisecond {
			t.Errorf("took %v, then 40 ms more, then %v", first, b.took[0])
		}
		b.at = 0
		for i, change := range []func(m *memory){func(m *memory) { m.out = true }, func(m *memory) { m.blank = true }} {
			m := &s.mem.memory[i]
			before := *m
			change(m)
			b.at, b.took[i] = 0, 5
			if s.pool.weigh(rt.Now()); b.took[i] != 0 || b.weights[i] != 0 || b.weights[1-i] == 0 {
				t.Errorf("server %d: took %v, weights %v", i, b.took, b.weights)
			}
			*m = before
		}
		s.mem.cfg.Balance, b.at, b.weights = false, 0, nil
		if s.pool.weigh(rt.Now()); b.weights != nil {
			t.Error("the servers are weighed without a reason")
		}
	})
}

// The counters of a store with copies: how many servers are away, and how many keys are lost.
func TestCountersWithCopies(t *testing.T) {
	for _, c := range []struct {
		backups    int
		out, blank bool
		away       uint64
	}{{0, false, true, 0}, {1, false, true, 1}, {1, true, false, 1}, {1, false, false, 0}, {0, true, false, 1}} {
		s, _ := lossy()
		s.mem.space.Backups, s.mem.memory[0].blank = c.backups, false
		s.mem.memory[1].out, s.mem.memory[1].blank = c.out, c.blank
		s.chains.keys[1], s.chains.keys[2], s.chains.keys[3] = &entry{lost: true}, &entry{}, &entry{}
		if st := s.Snapshot(); st.Away != c.away || st.LostKeys != 1 || st.Keys != 3 || st.Copies != uint64(c.backups+1) {
			t.Errorf("%+v: %d away, %d of %d keys lost", c, st.Away, st.LostKeys, st.Keys)
		}
	}
}

// After a loss without copies, the nodes of the server wait until all clients are fenced.
func TestNodesAfterALossWaitForAFence(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		cl, n := holder(t, s, 1, 3)
		there, away := opened(t, s, cl, 1, n[0]), opened(t, s, cl, 2, n[1])
		_, other := holder(t, s, 0, 1)
		s.pool.nextID += 3
		r.crash(s, 0)
		r.restart(0, rt)
		_ = s.mem.reach(0)
		there.recorded, there.mirrored = true, true
		if err := s.lose(0); err != nil {
			t.Error(err)
		}
		if !s.pool.orphans || !s.pool.void || s.pool.orphansAfter == nil || s.pool.fencedTo != s.pool.nextID || s.pool.nodes.held.of(other[0].Handle) != (held{client: orphan, void: true}) {
			t.Errorf("orphans %v, void %v, fence %v, fenced to %d of %d", s.pool.orphans, s.pool.void, s.pool.orphansAfter, s.pool.fencedTo, s.pool.nextID)
		}
		if s.recoverOrphans(rt.Now()); !s.pool.orphans {
			t.Error("the nodes do not wait for the fence")
		}
		rt.Sleep(10 * time.Millisecond)
		if s.recoverOrphans(rt.Now()); s.pool.orphans || s.pool.void || !isFree(s, other[0].Handle) {
			t.Errorf("orphans %v, void %v after the fence", s.pool.orphans, s.pool.void)
		}
		if !there.recorded || !away.recorded || !there.mirrored || !away.mirrored {
			t.Errorf("%+v, %+v", there, away)
		}
	})
}

// A header that cannot be read is no header: the key stays where it is, and is not lost.
func TestHeaderThatIsNotRead(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		e := opened(t, s, cl, 1, n[0])
		walked := s.mem.stats.Walked
		r.Host("ms1").Crash() // its connections look well
		if s.chains.follow([]*entry{e}, -1); e.at != n[0] || e.lost || e.ended || s.mem.stats.Walked != walked || s.mem.stats.Broken != 0 {
			t.Errorf("%+v, %+v", e, s.mem.stats)
		}
		e.recorded = false
		if s.chains.record([]*entry{e}); e.recorded {
			t.Error("the record is not written, and counts as written")
		}
		e.mirrored = false
		if mirror, _ := s.mem.space.Mirror(int(e.slot)); mirror.Server == 0 {
			if s.chains.mirror([]*entry{e}); !e.mirrored || record(t, s, mirror) != e.mirror() {
				t.Errorf("mirrored %v, %+v", e.mirrored, record(t, s, mirror))
			}
		}
	})
}

// At the end of its chain an entry has no reported nodes, and is not closing any more.
func TestEntryAtTheEndOfItsChain(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		e := opened(t, s, cl, 1, n[0])
		e.reported, e.closing = []reported{{at: n[1]}}, true
		s.chains.tidy.add(e)
		if s.chains.advance(true); len(e.reported) != 0 || e.closing || !e.ended || len(s.mem.walk.behind) != 0 {
			t.Errorf("%+v, %d behind", e, len(s.mem.walk.behind))
		}
		e.reported, e.recorded, e.ended = []reported{{at: n[1]}}, false, false
		s.chains.tidy.add(e)
		if s.chains.advance(true); len(e.reported) != 1 || e.ended || len(s.mem.walk.behind) != 1 { // the end is only read by catchUp
			t.Errorf("%+v, %d behind", e, len(s.mem.walk.behind))
		}
	})
}

// Mirrors or old records name lost keys, except those that another record names, and those whose
// slot another key has.
func TestLostKeysOfMirrors(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		first, _ := s.mem.space.Mirror(0)
		b := make([]byte, 4*layout.RecordLen)
		for k := range 4 {
			layout.KeyRecord{Key: uint64(k + 1), Lost: true}.Put(b[k*layout.RecordLen:])
		}
		known := &entry{key: 1, slot: 3}
		s.chains.keys[1] = known
		taken := map[uint32]bool{2: true}
		err := s.mem.writeBulk(first.Server, first.Offset, b)
		s.mem.memory[first.Server].generation = 5
		is, found := s.members.readMirrors(0, taken)
		if err := errors.Join(err, found); err != nil || !is || s.chains.keys[1] != known || s.chains.keys[2] != nil || len(s.chains.keys) != 3 {
			t.Errorf("known %v, %v, %v", is, s.chains.keys, err)
		}
		for key, slot := range map[uint64]uint32{3: 4, 4: 6} {
			if e := s.chains.keys[key]; e == nil || !e.lost || e.slot != slot || !e.mirrored || e.recorded || !taken[slot] || !e.at.IsZero() {
				t.Errorf("key %d: %+v", key, e)
			}
		}
		if taken[0] || len(taken) != 3 {
			t.Errorf("slots %v are taken", taken)
		}
	})
}

// A mirror on a server that is out is written when that server comes back.
func TestMirrorOnAServerThatIsOut(t *testing.T) {
	withMemory(t, 3, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
		e := &entry{key: 1, slot: 0, at: node(s, 1, 0, 1)}
		p, ok := s.mem.space.Mirror(0)
		s.mem.memory[p.Server].out = true
		if s.chains.mirror([]*entry{e}); !ok || !e.mirrored || record(t, s, p) != (layout.KeyRecord{}) {
			t.Errorf("mirrored %v, %+v", e.mirrored, record(t, s, p))
		}
	})
}

// A job wakes the main thread, and the oldest one is first.
func TestQueueOfJobs(t *testing.T) {
	m, g := newMailbox(t), &bell{}
	m.h.gate = g
	if _, ok := m.h.pop(); ok {
		t.Error("there is a job")
	}
	m.add(rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 10})
	m.add(rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 12})
	if more, err := m.h.waiting(); !more || err != nil || g.opened != 2 {
		t.Errorf("%v, %v, the main thread is woken %d times", more, err, g.opened)
	}
	if j, ok := m.h.pop(); !ok || !j.Held() || len(m.h.jobs) != 1 {
		t.Errorf("%v, %d jobs are left", ok, len(m.h.jobs))
	}
	r := rpc.Request{Op: rpc.OpBeat, Client: 1, Seq: 14}
	m.arrives(r.AppendTo(nil), func(r calls.Request) bool {
		m.h.accept(r)
		if !m.h.mu.TryLock() {
			t.Error("the lock is held after a request")
		}
		return true
	})
}

// The main thread without request threads handles the entries that are due without a pause, too.
func TestEntriesAreHandledWithoutAPause(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, rt verbs.Runtime) {
		for range 20 * lanes {
			s.chains.tidy.due = append(s.chains.tidy.due, &entry{key: 9})
		}
		s.keepAt = rt.Now().Add(time.Second)
		rt.Go("end", func() {
			rt.Sleep(keepEvery / 2)
			if left := len(s.chains.tidy.due) - s.chains.tidy.done; left != 0 {
				t.Errorf("%d entries are due", left)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := s.Serve(); err != nil {
			t.Error(err)
		}
	})
}

// The entries are handled a round trip at a time, between the requests: a server that ends leaves the
// others.
func TestEntriesAreHandledBetweenRequests(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		for range 40 * lanes {
			s.chains.tidy.due = append(s.chains.tidy.due, &entry{key: 9})
		}
		if err := errors.Join(s.Close(), s.Serve()); err != nil || len(s.chains.tidy.due)-s.chains.tidy.done < 20*lanes {
			t.Errorf("%v, %d of %d entries are left", err, len(s.chains.tidy.due)-s.chains.tidy.done, 40*lanes)
		}
	})
}

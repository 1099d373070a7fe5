package meta

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/slab"
)

// The store uses no more of each server than the smallest region, or than it is told to use.
func TestRegionOfAStore(t *testing.T) {
	for _, limit := range []int{0, 300 << 10} {
		withMemory(t, 2, func(c *Config) { c.Region = limit }, func(_ *pair, s *Server, _ verbs.Runtime) {
			most := s.mem.memory[0].ways[0].region.Len
			if limit > 0 {
				most = limit
			}
			if n := s.mem.space.RegionLen(); n > most || n < most-s.mem.space.SegmentLen()-64 {
				t.Errorf("limit %d: the store has %d of %d bytes", limit, n, most)
			}
		})
	}
}

// What was found before the number was taken is compared with what is there after that, unless the
// memory is formatted anyway: then another store there does not matter.
func TestFreshStartIsNotCompared(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
			s.mem.cfg.Fresh = fresh
			s.chains.slots, s.mem.starting = nil, true
			s.mem.store++ // superblocks of another store
			for i := range s.mem.memory {
				if err := s.mem.writeOwner(i); err != nil {
					t.Error(err)
				}
			}
			s.mem.store--
			before := s.mem.memory[0].generation
			err := s.load()
			if fresh && (err != nil || s.mem.memory[0].generation == before) || !fresh && err != nil {
				t.Errorf("fresh %v: %v", fresh, err)
			}
		})
	}
}

// Segments of a server that rest when its memory is lost do not rest any more: all nodes of the
// server are the orphan's.
func TestRestingSegmentsOfLostMemory(t *testing.T) {
	s := segmented(8)
	x := slab.Segment{Server: 0, N: 2}
	s.pool.segments.Rest(x, 1)
	s.pool.segments.Rest(slab.Segment{Server: 1, N: 2}, 1)
	s.pool.voidServer(0)
	h := s.pool.segment(0, 2, 0)
	if n := s.pool.nodes.held.of(h); s.pool.segments.Rests(x) || s.pool.segments.Resting() != 1 || !n.void || s.pool.nodes.held.len() != 4*s.mem.space.PerSegment(0) {
		t.Errorf("%d segments rest, the node is %+v, %d are held", s.pool.segments.Resting(), n, s.pool.nodes.held.len())
	}
}

// Resting segments alone make the next epoch begin. Without any, and without worn nodes, none does.
func TestEpochsOfRestingSegments(t *testing.T) {
	for _, rests := range []int{0, 1, 2} {
		s := segmented(8)
		now := clock.Time(77)
		s.mem.rt, s.pool.epoch, s.pool.clients = ticking{now: &now}, 5, map[uint32]*client{}
		for k := range rests {
			s.pool.segments.Rest(slab.Segment{N: 1 + k}, 5)
		}
		want := uint32(5)
		if rests > 0 {
			want = 6
		}
		if s.pool.turn(); s.pool.epoch != want || s.pool.segments.Resting() != rests {
			t.Errorf("%d rest: epoch %d, want %d", rests, s.pool.epoch, want)
		}
		if s.pool.turn(); s.pool.segments.Resting() != 0 || s.pool.segments.Unused(0) != rests {
			t.Errorf("%d rest: %d in the next epoch", rests, s.pool.segments.Resting())
		}
	}
}

// The records are written to the servers that are filled, and to the others that count only if an
// attempt has failed.
func TestRecordsOfServersThatAreNotFilled(t *testing.T) {
	for _, all := range []bool{false, true} {
		withMemory(t, 3, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
			cl, n := holder(t, s, 0, 1)
			e := opened(t, s, cl, 1, n[0])
			p, _ := s.mem.space.Record(int(e.slot))
			q, _ := s.mem.space.RecordCopy(int(e.slot), 1)
			empty := make([]byte, layout.RecordLen)
			if err := errors.Join(s.mem.writeBulk(p.Server, p.Offset, empty), s.mem.writeBulk(q.Server, q.Offset, empty)); err != nil {
				t.Error(err)
			}
			s.mem.memory[q.Server].out = true
			if err := s.members.settleView([]int{q.Server}, all); err != nil {
				t.Error(err)
			}
			if a, b := record(t, s, p), record(t, s, q); (a.At == e.at) != all || b.At != e.at || s.mem.outs() != 0 {
				t.Errorf("all %v: the record that was not filled %+v, the other one %+v", all, a, b)
			}
			s.mem.memory[q.Server].out = true // one that is out, and not filled, is left alone
			if err := errors.Join(s.mem.writeBulk(q.Server, q.Offset, empty), s.members.settleView(nil, all)); err != nil || record(t, s, q) != (layout.KeyRecord{}) {
				t.Errorf("all %v: %+v, %v", all, record(t, s, q), err)
			}
		})
	}
}

// Memory that is no store's and no tree's is free to be taken. A server that does not answer is not
// taken for empty.
func TestMemoryWithoutATree(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		if err := errors.Join(s.mem.writeBulk(0, 0, bytes.Repeat([]byte{7}, layout.SuperblockLen)), s.mem.notForeign(0), s.mem.notForeign(1)); err != nil {
			t.Error(err)
		}
		if err := putTree(s); err != nil || s.mem.notForeign(0) == nil {
			t.Errorf("a tree is not found, %v", err)
		}
		r.crash(s, 1)
		if s.mem.notForeign(1) == nil {
			t.Error("a server that does not answer has no tree")
		}
		s.mem.cfg.Fresh = true
		began := rt.Now()
		if err := errors.Join(s.mem.notForeign(0), s.mem.notForeign(1)); err != nil || rt.Now() != began {
			t.Errorf("to be formatted: %v after %v", err, rt.Now().Sub(began))
		}
	})
}

// An idle server waits: in a second it takes few steps.
func TestStepsOfAnIdleServer(t *testing.T) {
	r := newPair(t, 0)
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) {
		polls := &countedRT{Runtime: rt}
		s.mem.rt = polls
		rt.Go("end", func() {
			rt.Sleep(time.Second)
			if polls.n > 4000 {
				t.Errorf("the clock was read %d times in a second", polls.n)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := s.Serve(); err != nil {
			t.Error(err)
		}
	})
	r.run()
}

// countedRT counts how often the clock is read.
type countedRT struct {
	verbs.Runtime
	n int
}

func (c *countedRT) Now() clock.Time { c.n++; return c.Runtime.Now() }

package meta

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// works does the periodic work of the memory servers until the end is reached. It returns how long
// that took, at most `most`.
func works(s *Server, rt verbs.Runtime, most time.Duration, end func() bool) time.Duration {
	began := rt.Now()
	for !end() && rt.Now() < began.Add(most) {
		s.watchMemory(rt.Now())
		rt.Sleep(keepEvery)
	}
	return rt.Now().Sub(began)
}

// sameCopies checks that the copies of the first nodes of each server that count are the same, and
// the superblocks are those of the view.
func sameCopies(t *testing.T, what string, s *Server) {
	t.Helper()
	for of := range s.mem.memory {
		p, _ := s.mem.space.Place(s.pool.segment(of, 0, 0))
		var want []byte
		for j, q := range s.mem.copies(p) {
			b, err := s.mem.readBulk(q.Server, q.Offset, 8*p.Len)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			if j == 0 {
				want = b
			} else if !bytes.Equal(b, want) {
				t.Errorf("%s: copy %d of the nodes of server %d has other bytes", what, j, of)
			}
		}
		if s.mem.memory[of].out {
			continue
		}
		used := s.mem.space.RegionLen()
		if b, err := s.mem.readBulk(of, used, s.mem.memory[of].ways[0].region.Len-used); err != nil || slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
			t.Errorf("%s: server %d: bytes behind the store are written, %v", what, of, err)
		}
		if super, err := s.mem.superblock(of); err != nil || super.View != s.mem.view || super.Out != s.mem.outs() || super.Generation != s.mem.memory[of].generation {
			t.Errorf("%s: server %d: %+v, %v; view %d, out %b", what, of, super, err, s.mem.view, s.mem.outs())
		}
	}
}

// A memory server of a store with copies loses its memory: at once a change of the view begins,
// which fills it again. Its clients say hello again, and no key is lost.
func TestChangeAfterALoss(t *testing.T) {
	withMemory(t, 3, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		e := opened(t, s, cl, 1, n[0])
		if err := errors.Join(put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1), put(s, n[1], layout.Header(n[1].Version), 1)); err != nil {
			t.Error(err)
		}
		for i := range s.mem.memory {
			if err := put(s, layout.Location{Handle: s.pool.segment(i, 0, 0) + 7, Version: 1}, layout.Header(layout.Version(10+i)), 1); err != nil {
				t.Error(err)
			}
		}
		lending(s, rt)
		before, epoch := s.mem.memory[1].generation, s.pool.epoch
		r.crash(s, 1)
		r.restart(1, rt)
		took := works(s, rt, 3*time.Second, func() bool { return s.mem.view == 1 })
		if s.mem.view != 1 || s.members.change != nil || took > 200*time.Millisecond || !cl.stale || s.pool.epoch != epoch+1 || s.mem.stats.Losses != 1 {
			t.Errorf("view %d after %v, change %v, stale %v, epoch %d, %d losses", s.mem.view, took, s.members.change, cl.stale, s.pool.epoch, s.mem.stats.Losses)
		}
		if m := s.mem.memory[1]; m.blank || m.out || m.generation == before || m.generation == 0 || m.marked != 0 {
			t.Errorf("%+v", m)
		}
		sameCopies(t, "after a loss", s)
		if s.chains.followAll(); e.lost || e.at != n[1] || s.pool.void || s.pool.orphans {
			t.Errorf("%+v, void %v", e, s.pool.void)
		}
		for j := range 2 {
			if p, _ := s.mem.space.RecordCopy(int(e.slot), j); record(t, s, p).At != n[1] {
				t.Errorf("copy %d of the record: %+v", j, record(t, s, p))
			}
		}
	})
}

// A memory server does not answer. When it is silent for half a lease, and no client has a lease
// any more, the store goes on without it. When it answers again, it is filled and counts again.
func TestChangeWithoutAServer(t *testing.T) {
	withMemory(t, 3, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		cl, n := holder(t, s, 1, 2)
		e := opened(t, s, cl, 1, n[0])
		until := cl.heard.Add(s.mem.cfg.Lease)
		r.crash(s, 1)
		began := rt.Now()
		if works(s, rt, s.mem.cfg.Lease/2, func() bool { return s.members.change != nil }); s.members.change != nil || s.mem.memory[1].since == 0 || s.mem.memory[1].since > began.Add(s.mem.reachTime()+2*keepEvery) {
			t.Errorf("a change begins too early: silent since %v", s.mem.memory[1].since.Sub(began))
		}
		works(s, rt, 3*time.Second, func() bool { return s.members.change != nil })
		if s.members.change == nil || s.mem.view != 0 || s.mem.memory[1].out || s.members.change.until != until {
			t.Errorf("view %d, out %v, change %+v", s.mem.view, s.mem.memory[1].out, s.members.change)
		}
		works(s, rt, 3*time.Second, func() bool { return s.members.change == nil })
		if s.mem.view != 1 || s.mem.outs() != 2 || rt.Now() < until || rt.Now() > until.Add(s.mem.cfg.Lease) || s.mem.stats.Losses != 0 || s.mem.memory[1].since != 0 {
			t.Errorf("view %d, %b out after %v, %d losses, silent since %v", s.mem.view, s.mem.outs(), rt.Now().Sub(began), s.mem.stats.Losses, s.mem.memory[1].since)
		}
		if err := put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1); err != nil { // on one copy
			t.Error(err)
		}
		if err := put(s, n[1], layout.Header(n[1].Version), 1); err != nil {
			t.Error(err)
		}
		if s.chains.followAll(); e.at != n[1] || !e.ended || !e.recorded {
			t.Errorf("%+v", e)
		}
		x := s.pool.fences.Add(7)
		rt.Sleep(10 * time.Millisecond)
		if !s.pool.fences.Over(x) {
			t.Error("a fence waits for a server that is out")
		}
		works(s, rt, 2*s.mem.cfg.Lease, func() bool { return false }) // nothing happens until it is back
		if s.mem.view != 1 || s.members.change != nil {
			t.Errorf("view %d, change %v while the server is away", s.mem.view, s.members.change)
		}
		r.restart(1, rt)
		if works(s, rt, 5*time.Second, func() bool { return s.mem.view == 2 }); s.mem.view != 2 || s.mem.outs() != 0 || s.members.change != nil || s.mem.stats.Losses != 1 {
			t.Errorf("view %d, %b out, %d losses", s.mem.view, s.mem.outs(), s.mem.stats.Losses)
		}
		sameCopies(t, "after it came back", s)
		if h := headerOf(t, s, n[0], 0); h != layout.Superseded(n[0].Version, n[1]) {
			t.Errorf("the copy that was filled has %v", h)
		}
	})
}

// The only server with a copy of some nodes stays in the view though it is silent.
func TestServerWithTheOnlyCopy(t *testing.T) {
	withMemory(t, 2, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		r.crash(s, 1)
		works(s, rt, 5*time.Second, func() bool { return s.mem.view == 1 })
		if s.mem.view != 1 || s.mem.outs() != 2 {
			t.Errorf("view %d, %b out", s.mem.view, s.mem.outs())
		}
		r.crash(s, 0)
		works(s, rt, 5*s.mem.cfg.Lease, func() bool { return s.mem.view != 1 })
		if s.mem.view != 1 || s.mem.outs() != 2 {
			t.Errorf("without a server: view %d, %b out", s.mem.view, s.mem.outs())
		}
		r.restart(1, rt) // it has no memory, and its copies do not count
		works(s, rt, 5*s.mem.cfg.Lease, func() bool { return s.mem.view != 1 })
		if s.mem.view != 1 || s.mem.outs() != 2 || s.mem.memory[0].out {
			t.Errorf("with old copies only: view %d, %b out", s.mem.view, s.mem.outs())
		}
	})
}

// Two of three servers lose their memory, and some nodes have both copies there. Their keys are
// lost, and the others are not.
func TestChangeAfterALossOfAllCopies(t *testing.T) {
	withMemory(t, 3, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		cl, n1 := holder(t, s, 1, 1) // copies on 1 and 2
		_, n2 := holder(t, s, 2, 1)  // copies on 2 and 0
		gone, stays := opened(t, s, cl, 1, n1[0]), opened(t, s, cl, 2, n2[0])
		for i := 1; i < 3; i++ {
			r.crash(s, i)
			r.restart(i, rt)
		}
		works(s, rt, 5*time.Second, func() bool { return s.mem.view == 1 })
		if s.mem.view != 1 || s.mem.outs() != 0 || !gone.lost || stays.lost || s.mem.stats.Losses != 2 || !s.pool.orphans || !s.pool.void {
			t.Errorf("view %d, %b out, lost %v and %v, %d losses, void %v", s.mem.view, s.mem.outs(), gone.lost, stays.lost, s.mem.stats.Losses, s.pool.void)
		}
		sameCopies(t, "after a loss of all copies", s)
		s.chains.followAll()
		for _, e := range []*entry{gone, stays} {
			for j := range 2 {
				if p, _ := s.mem.space.RecordCopy(int(e.slot), j); record(t, s, p) != s.chains.recordOf(e) {
					t.Errorf("key %d: copy %d of the record %+v", e.key, j, record(t, s, p))
				}
			}
			if p, _ := s.mem.space.Mirror(int(e.slot)); record(t, s, p) != e.mirror() {
				t.Errorf("key %d: mirror %+v", e.key, record(t, s, p))
			}
		}
		if s.recoverOrphans(rt.Now()); s.pool.orphans || s.pool.void || !isFree(s, n1[0].Handle) {
			t.Errorf("orphans %v, void %v", s.pool.orphans, s.pool.void)
		}
	})
}

// All servers are silent for a while, as when the metadata server's link is cut. None goes out,
// also when they answer one after the other.
func TestSilenceOfAllServers(t *testing.T) {
	withMemory(t, 3, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
		s.mem.answering = true
		for i := range s.mem.memory {
			_ = s.mem.breakWays(i)
		}
		rt.Sleep(time.Second)
		s.members.noteSilence()
		for i := range s.mem.memory {
			if s.mem.memory[i].since != rt.Now() {
				t.Errorf("server %d is silent since %v, now %v", i, s.mem.memory[i].since, rt.Now())
			}
		}
		if s.mem.answering {
			t.Error("a server answers")
		}
		for i := range s.mem.memory {
			s.mem.memory[i].since = 5
		}
		if err := s.mem.openWays(1, s.mem.deadline()); err != nil { // the first one that answers
			t.Error(err)
		}
		s.members.noteSilence()
		if since := []bool{s.mem.memory[0].since == rt.Now(), s.mem.memory[1].since == 0, s.mem.memory[2].since == rt.Now()}; slices.Contains(since, false) || !s.mem.answering {
			t.Errorf("%+v", s.mem.memory)
		}
		s.mem.memory[0].since = 0 // it was heard until now
		if s.members.noteSilence(); s.mem.memory[0].since != rt.Now() {
			t.Errorf("%+v", s.mem.memory[0])
		}
		s.mem.memory[0].since, s.mem.memory[2].out = 5, true
		if s.members.noteSilence(); s.mem.memory[0].since != 5 || s.mem.memory[2].since != 0 {
			t.Errorf("%+v", s.mem.memory)
		}
		s.mem.memory[1].out = true // an answer of a server that is out does not count
		if s.members.noteSilence(); s.mem.answering || s.mem.memory[0].since != rt.Now() {
			t.Errorf("%+v", s.mem.memory)
		}
	})
}

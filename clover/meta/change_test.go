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
	for of := range s.memory {
		p, _ := s.space.Place(s.segment(of, 0, 0))
		var want []byte
		for j, q := range s.copies(p) {
			b, err := s.readBulk(q.Server, q.Offset, 8*p.Len)
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
		if s.memory[of].out {
			continue
		}
		used := s.space.RegionLen()
		if b, err := s.readBulk(of, used, s.memory[of].ways[0].region.Len-used); err != nil || slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
			t.Errorf("%s: server %d: bytes behind the store are written, %v", what, of, err)
		}
		if super, err := s.superblock(of); err != nil || super.View != s.view || super.Out != s.outs() || super.Generation != s.memory[of].generation {
			t.Errorf("%s: server %d: %+v, %v; view %d, out %b", what, of, super, err, s.view, s.outs())
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
		for i := range s.memory {
			if err := put(s, layout.Location{Handle: s.segment(i, 0, 0) + 7, Version: 1}, layout.Header(layout.Version(10+i)), 1); err != nil {
				t.Error(err)
			}
		}
		lending(s, rt)
		before, epoch := s.memory[1].generation, s.epoch
		r.crash(s, 1)
		r.restart(1, rt)
		took := works(s, rt, 3*time.Second, func() bool { return s.view == 1 })
		if s.view != 1 || s.change != nil || took > 200*time.Millisecond || !cl.stale || s.epoch != epoch+1 || s.stats.Losses != 1 {
			t.Errorf("view %d after %v, change %v, stale %v, epoch %d, %d losses", s.view, took, s.change, cl.stale, s.epoch, s.stats.Losses)
		}
		if m := s.memory[1]; m.blank || m.out || m.generation == before || m.generation == 0 || m.marked != 0 {
			t.Errorf("%+v", m)
		}
		sameCopies(t, "after a loss", s)
		if s.followAll(); e.lost || e.at != n[1] || s.void || s.orphans {
			t.Errorf("%+v, void %v", e, s.void)
		}
		for j := range 2 {
			if p, _ := s.space.RecordCopy(int(e.slot), j); record(t, s, p).At != n[1] {
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
		until := cl.heard.Add(s.cfg.Lease)
		r.crash(s, 1)
		began := rt.Now()
		if works(s, rt, s.cfg.Lease/2, func() bool { return s.change != nil }); s.change != nil || s.memory[1].since == 0 || s.memory[1].since > began.Add(s.reachTime()+2*keepEvery) {
			t.Errorf("a change begins too early: silent since %v", s.memory[1].since.Sub(began))
		}
		works(s, rt, 3*time.Second, func() bool { return s.change != nil })
		if s.change == nil || s.view != 0 || s.memory[1].out || s.change.until != until {
			t.Errorf("view %d, out %v, change %+v", s.view, s.memory[1].out, s.change)
		}
		works(s, rt, 3*time.Second, func() bool { return s.change == nil })
		if s.view != 1 || s.outs() != 2 || rt.Now() < until || rt.Now() > until.Add(s.cfg.Lease) || s.stats.Losses != 0 || s.memory[1].since != 0 {
			t.Errorf("view %d, %b out after %v, %d losses, silent since %v", s.view, s.outs(), rt.Now().Sub(began), s.stats.Losses, s.memory[1].since)
		}
		if err := put(s, n[0], layout.Superseded(n[0].Version, n[1]), 1); err != nil { // on one copy
			t.Error(err)
		}
		if err := put(s, n[1], layout.Header(n[1].Version), 1); err != nil {
			t.Error(err)
		}
		if s.followAll(); e.at != n[1] || !e.ended || !e.recorded {
			t.Errorf("%+v", e)
		}
		x := s.fences.Add(7)
		rt.Sleep(10 * time.Millisecond)
		if !s.fences.Over(x) {
			t.Error("a fence waits for a server that is out")
		}
		works(s, rt, 2*s.cfg.Lease, func() bool { return false }) // nothing happens until it is back
		if s.view != 1 || s.change != nil {
			t.Errorf("view %d, change %v while the server is away", s.view, s.change)
		}
		r.restart(1, rt)
		if works(s, rt, 5*time.Second, func() bool { return s.view == 2 }); s.view != 2 || s.outs() != 0 || s.change != nil || s.stats.Losses != 1 {
			t.Errorf("view %d, %b out, %d losses", s.view, s.outs(), s.stats.Losses)
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
		works(s, rt, 5*time.Second, func() bool { return s.view == 1 })
		if s.view != 1 || s.outs() != 2 {
			t.Errorf("view %d, %b out", s.view, s.outs())
		}
		r.crash(s, 0)
		works(s, rt, 5*s.cfg.Lease, func() bool { return s.view != 1 })
		if s.view != 1 || s.outs() != 2 {
			t.Errorf("without a server: view %d, %b out", s.view, s.outs())
		}
		r.restart(1, rt) // it has no memory, and its copies do not count
		works(s, rt, 5*s.cfg.Lease, func() bool { return s.view != 1 })
		if s.view != 1 || s.outs() != 2 || s.memory[0].out {
			t.Errorf("with old copies only: view %d, %b out", s.view, s.outs())
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
		works(s, rt, 5*time.Second, func() bool { return s.view == 1 })
		if s.view != 1 || s.outs() != 0 || !gone.lost || stays.lost || s.stats.Losses != 2 || !s.orphans || !s.void {
			t.Errorf("view %d, %b out, lost %v and %v, %d losses, void %v", s.view, s.outs(), gone.lost, stays.lost, s.stats.Losses, s.void)
		}
		sameCopies(t, "after a loss of all copies", s)
		s.followAll()
		for _, e := range []*entry{gone, stays} {
			for j := range 2 {
				if p, _ := s.space.RecordCopy(int(e.slot), j); record(t, s, p) != s.recordOf(e) {
					t.Errorf("key %d: copy %d of the record %+v", e.key, j, record(t, s, p))
				}
			}
			if p, _ := s.space.Mirror(int(e.slot)); record(t, s, p) != mirrorOf(e) {
				t.Errorf("key %d: mirror %+v", e.key, record(t, s, p))
			}
		}
		if s.recoverOrphans(rt.Now()); s.orphans || s.void || !isFree(s, n1[0].Handle) {
			t.Errorf("orphans %v, void %v", s.orphans, s.void)
		}
	})
}

// All servers are silent for a while, as when the metadata server's link is cut. None goes out,
// also when they answer one after the other.
func TestSilenceOfAllServers(t *testing.T) {
	withMemory(t, 3, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
		s.answering = true
		for i := range s.memory {
			_ = s.breakWays(i)
		}
		rt.Sleep(time.Second)
		noteSilence(s)
		for i := range s.memory {
			if s.memory[i].since != rt.Now() {
				t.Errorf("server %d is silent since %v, now %v", i, s.memory[i].since, rt.Now())
			}
		}
		if s.answering {
			t.Error("a server answers")
		}
		for i := range s.memory {
			s.memory[i].since = 5
		}
		if err := s.openWays(1, s.deadline()); err != nil { // the first one that answers
			t.Error(err)
		}
		noteSilence(s)
		if since := []bool{s.memory[0].since == rt.Now(), s.memory[1].since == 0, s.memory[2].since == rt.Now()}; slices.Contains(since, false) || !s.answering {
			t.Errorf("%+v", s.memory)
		}
		s.memory[0].since = 0 // it was heard until now
		if noteSilence(s); s.memory[0].since != rt.Now() {
			t.Errorf("%+v", s.memory[0])
		}
		s.memory[0].since, s.memory[2].out = 5, true
		if noteSilence(s); s.memory[0].since != 5 || s.memory[2].since != 0 {
			t.Errorf("%+v", s.memory)
		}
		s.memory[1].out = true // an answer of a server that is out does not count
		if noteSilence(s); s.answering || s.memory[0].since != rt.Now() {
			t.Errorf("%+v", s.memory)
		}
	})
}

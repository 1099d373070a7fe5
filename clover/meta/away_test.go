package meta

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// quiet makes a server ask no memory service and probe no memory server.
func (s *Server) quiet(now clock.Time) {
	for i := range s.members.watched {
		s.members.watched[i].askAt = clock.Never
	}
	s.members.probeAt, s.members.probeDue, s.members.backAt = now.Add(time.Hour), false, now.Add(time.Hour)
}

// A server that is out and does not answer is tried again after a pause. If it answers, its
// superblock is read: what cannot be read cannot be filled. Then it gets the present view.
func TestServerThatIsOutIsLookedAt(t *testing.T) {
	withMemory(t, 2, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		m := &s.mem.memory[1]
		s.mem.view = 3
		m.out, m.marked = true, 3
		r.crash(s, 1)
		s.quiet(rt.Now())
		began := rt.Now()
		pause := max(downPause, 4*s.mem.reachTime())
		if s.watchMemory(began); m.marked != 0 || m.retryAt != rt.Now().Add(pause) || rt.Now() == began || s.mem.connected(1) || s.members.change != nil {
			t.Errorf("%+v after %v, change %v", m, rt.Now().Sub(began), s.members.change)
		}
		r.restart(1, rt)
		began = rt.Now()
		m.retryAt = began + 1
		if s.watchMemory(began); s.mem.connected(1) || rt.Now() != began {
			t.Error("it is looked at before the end of the pause")
		}
		m.retryAt = began
		if s.watchMemory(began); !s.mem.connected(1) || m.marked != 3 || m.retryAt < began.Add(pause) || !m.out {
			t.Errorf("%+v, connected %v", m, s.mem.connected(1))
		}
		if super, err := s.mem.superblock(1); err != nil || super.View != 3 || super.Out != 2 {
			t.Errorf("%+v, %v", super, err)
		}
		s.mem.view = 4 // the next view is written as well
		if s.watchMemory(rt.Now()); m.marked != 4 {
			t.Errorf("%+v", m)
		}
		if super, err := s.mem.superblock(1); err != nil || super.View != 4 {
			t.Errorf("%+v, %v", super, err)
		}
	})
}

// look makes no connection to a server whose memory is lost that it would keep without a READ.
func TestLookReadsASuperblock(t *testing.T) {
	withMemory(t, 2, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
		s.mem.memory[1].blank = true
		_ = s.mem.breakWays(1)
		s.mem.memory[1].ways[0].region.RKey++ // is replaced by the connection
		began := rt.Now()
		if s.members.look(1); !s.mem.connected(1) || s.mem.memory[1].retryAt < began.Add(downPause) {
			t.Errorf("connected %v, %+v", s.mem.connected(1), s.mem.memory[1])
		}
		between := rt.Now().Sub(began)
		_ = s.mem.breakWays(1)
		began = rt.Now()
		if err := s.mem.openWays(1, s.mem.deadline()); err != nil || rt.Now().Sub(began) >= between {
			t.Errorf("%v: a look takes %v, a connection alone %v", err, between, rt.Now().Sub(began))
		}
		r.Host("ms1").Crash()
		if s.members.look(1); s.mem.connected(1) {
			t.Error("the connection stays though the READ has failed")
		}
	})
}

// What is due at a time is done then: a probe, and not before. A server that is out does not make a
// change urgent.
func TestProbesInTime(t *testing.T) {
	for in, want := range map[time.Duration]bool{0: true, 1: false} {
		withMemory(t, 2, withCopies, func(_ *pair, s *Server, rt verbs.Runtime) {
			now := rt.Now()
			s.quiet(now)
			s.members.probeAt = now.Add(in)
			if s.watchMemory(now); (rt.Now() > now) != want || (s.members.probeAt == now.Add(s.mem.cfg.probe())) != want {
				t.Errorf("a probe that is due in %v ns is made: %v", int(in), rt.Now() > now)
			}
			now = rt.Now()
			s.quiet(now)
			s.mem.memory[1].out, s.mem.memory[1].blank, s.mem.memory[1].marked, s.mem.view = true, true, 3, 3
			if s.watchMemory(now); s.members.change != nil || s.mem.view != 3 {
				t.Errorf("change %v, view %d", s.members.change, s.mem.view)
			}
			s.mem.memory[0].out, s.members.probeDue = true, true // only servers that count are probed
			s.mem.memory[0].marked = 3
			if s.watchMemory(now); rt.Now() != now {
				t.Error("a server that is out is read")
			}
		})
	}
}

// A server that is filled dies meanwhile. The attempt fails, the view stays as it was, and the next
// attempt writes all records again.
func TestAttemptThatFails(t *testing.T) {
	failed := 0
	for after := 100 * time.Microsecond; after < 1500*time.Microsecond; after += 50 * time.Microsecond {
		withMemory(t, 3, withCopies, func(r *pair, s *Server, rt verbs.Runtime) {
			cl, n := holder(t, s, 0, 1)
			e := opened(t, s, cl, 1, n[0])
			if err := s.mem.writeBulk(1, 0, make([]byte, layout.SuperblockLen)); err != nil {
				t.Error(err)
			}
			s.members.begin(rt.Now())
			for !s.pool.fences.Over(s.members.change.fence) {
				rt.Sleep(time.Millisecond)
			}
			r.At(rt.Now().Add(after), func() { r.Host("ms1").Crash() })
			err := s.members.tryChange()
			if err == nil || s.mem.connected(1) {
				return // it was not the server that is filled that failed, or too late
			}
			if s.mem.outs() != 0 {
				t.Errorf("after %v: %b are out", after, s.mem.outs())
			}
			if !s.members.change.again {
				return // before the servers are filled
			}
			failed++
			p, _ := s.mem.space.Record(int(e.slot))
			if err := s.mem.writeBulk(p.Server, p.Offset, make([]byte, layout.RecordLen)); err != nil && p.Server != 1 {
				t.Error(err)
			}
			r.crash(s, 1)
			r.restart(1, rt)
			works(s, rt, 5*time.Second, func() bool { return s.members.change == nil })
			if s.mem.outs() != 0 || s.members.change != nil || record(t, s, p).At != e.at {
				t.Errorf("after %v: %b are out, change %v, record %+v", after, s.mem.outs(), s.members.change, record(t, s, p))
			}
		})
	}
	if failed == 0 {
		t.Error("no attempt has failed while a server was filled: the test does not test much")
	}
}

// Before a server is filled, its superblock is erased, unless it says that its copies do not count.
// If the chains cannot be followed after a loss, the view stays.
func TestSuperblocksBeforeServersAreFilled(t *testing.T) {
	withMemory(t, 3, withCopies, func(r *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 0, 1) // copies on 0 and 1
		s.chains.slots = []uint32{0}
		opened(t, s, cl, 1, n[0])
		s.mem.memory[1].out, s.mem.memory[2].out, s.mem.memory[1].marked = true, true, 7
		r.crash(s, 0)
		err := s.members.settleView([]int{1, 2}, false)
		if !errors.Is(err, errDown) || s.mem.view != 0 {
			t.Errorf("%v, view %d", err, s.mem.view)
		}
		_, first := s.mem.superblock(1)
		_, second := s.mem.superblock(2)
		if first != nil || !errors.Is(second, layout.ErrSuperblock) {
			t.Errorf("the superblock of the marked server: %v, of the other one: %v", first, second)
		}
	})
}

// A server gets another number from all memory servers when one of them knows a greater one. It
// asks again those that it had asked before.
func TestNumberOfAllMemoryServers(t *testing.T) {
	withMemory(t, 3, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
		for i, greater := range map[int]uint32{1: s.mem.owner + 5, 2: s.mem.owner + 9} {
			if _, err := reserved(s, i, greater<<incarnationBits); err != nil {
				t.Error(err)
			}
		}
		want := s.mem.owner + 10
		s.mem.owner++
		if err := s.mem.reserve(); err != nil || s.mem.owner != want {
			t.Errorf("incarnation %d, want %d, %v", s.mem.owner, want, err)
		}
		for i := range s.mem.memory {
			if before, err := reserved(s, i, 1); err != nil || before != want<<incarnationBits {
				t.Errorf("server %d has given %#x, want %#x, %v", i, before, want<<incarnationBits, err)
			}
		}
		s.mem.owner = maxIncarnation + 1
		if err := s.mem.reserve(); !errors.Is(err, errNumbers) {
			t.Error(err)
		}
		s.mem.owner = maxIncarnation
		if err := s.mem.reserve(); err != nil || s.mem.owner != maxIncarnation {
			t.Errorf("the last incarnation: %v", err)
		}
	})
}

// reserved asks memory server i for a number.
func reserved(s *Server, i int, number uint32) (before uint32, err error) {
	return memservice.Reserve(s.mem.cfg.Context, s.mem.cfg.Manager, s.mem.cfg.Servers[i], number, s.mem.deadline())
}

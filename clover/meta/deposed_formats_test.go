package meta

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// One metadata server hangs, another one takes over, and formats a memory server that was restarted, while a fence there is still due.
// The first one goes on, finds a generation that it does not know, and must not take the memory for lost and format it. ends: later the
// other one's connection to that memory server ends, and its memory must not be taken for lost either.
func TestDeposedServerFormatsNothing(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprint("connection ends ", ends), func(t *testing.T) { deposedFormats(t, ends) })
	}
}

func deposedFormats(t *testing.T, ends bool) {
	r := newPair(t, 0)
	goOn, over0, ready0 := false, false, false
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) {
		ready0 = true
		await(rt, &goOn)
		for i := range s.mem.memory {
			_ = s.mem.breakWays(i) // its link was cut meanwhile
		}
		for end := rt.Now().Add(200 * time.Millisecond); rt.Now() < end && !s.mem.deposed; rt.Sleep(time.Millisecond) {
			s.members.probeDue = true
			s.watchMemory(rt.Now())
			t.Logf("%v md0 after a round: blank %v connected %v %v deposed %v", rt.Now(), s.mem.memory[0].blank, s.mem.connected(0), s.mem.connected(1), s.mem.deposed)
		}
		t.Logf("md0: losses %d deposed %v owner %d", s.mem.stats.Losses, s.mem.deposed, s.mem.owner)
		if s.mem.stats.Losses > 0 {
			t.Errorf("the deposed metadata server has formatted %d servers", s.mem.stats.Losses)
		}
		_ = s.Close()
		over0 = true
	})
	r.Host("md1").Go("story", false, func(ctx verbs.Context) {
		await(ctx.Runtime(), &ready0)
		r.begin("md1", unwrapped, func(s *Server, rt verbs.Runtime) {
			ms0 := r.Host("ms0")
			ms0.Crash()
			s.pool.fences.Add(s.pool.nextID) // a client has died
			rt.Sleep(10 * time.Millisecond)
			ms0.Restart()
			r.memory("ms0")
			for s.mem.stats.Losses == 0 {
				rt.Sleep(10 * time.Millisecond)
				s.members.probeDue = true
				s.watchMemory(rt.Now())
			}
			// acknowledge new keys: some have their record on ms0
			n := 0
			for k := uint64(1); k <= 60; k++ {
				var a rpc.Answer
				l := layout.Location{Handle: s.pool.segment(1, 0, 0) + layout.Handle(k), Version: 1}
				s.chains.open(&rpc.Request{Op: rpc.OpOpen, Key: k, At: l}, &a)
				if a.Status == rpc.OK && s.chains.keys[k].recorded {
					n++
				}
			}
			t.Logf("md1: %d keys opened", n)
			t.Logf("%v goOn, ms0 idle of fences: %v", rt.Now(), s.pool.fences.Idle(0))
			goOn = true
			await(rt, &over0)
			rt.Sleep(3 * time.Second)
			super, err := s.mem.superblock(0)
			if err != nil || super.Generation != s.mem.memory[0].generation || super.Owner != s.mem.owner {
				t.Errorf("md1's memory has another superblock: %v, generation %x (%x), owner %d (%d)", err, super.Generation, s.mem.memory[0].generation, super.Owner, s.mem.owner)
			}
			lost := s.mem.stats.Losses
			_ = s.mem.breakWays(0) // a packet is lost
			for end := rt.Now().Add(time.Second); rt.Now() < end; rt.Sleep(10 * time.Millisecond) {
				if !ends {
					break
				}
				s.watchMemory(rt.Now())
			}
			if s.mem.stats.Losses != lost {
				t.Errorf("ms0 was not restarted again, and its memory is lost again for md1")
			}
			// a restart
			_ = s.Close()
			r.begin("md0", unwrapped, func(s2 *Server, rt verbs.Runtime) {
				found := 0
				for k := uint64(1); k <= 60; k++ {
					if s2.chains.keys[k] != nil {
						found++
					}
				}
				if found != n {
					t.Errorf("%d of %d acknowledged keys are found by the next metadata server", found, n)
				}
			})
		})
	})
	r.run()
}

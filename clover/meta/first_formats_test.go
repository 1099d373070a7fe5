package meta

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// As TestAnotherServerIsAboutToFormat, with the roles changed: the first metadata server hangs at some instant before it formats memory that
// was lost, the other one makes a store and serves, and then the first one goes on. It must not format over the other one's store.
func TestFirstServerIsAboutToFormat(t *testing.T) {
	bad, runs := 0, 0
	for seed := range uint64(12) {
		for after := time.Duration(0); after < 60*time.Microsecond; after += 2 * time.Microsecond {
			opened, found, ran := firstFormats(t, seed, after)
			if ran {
				runs++
			}
			if ran && found < opened {
				if bad++; bad <= 3 {
					t.Errorf("seed %d after %v: %d of %d acknowledged keys are found", seed, after, found, opened)
				}
			}
		}
	}
	t.Logf("%d of %d runs bad", bad, runs)
}

func firstFormats(t *testing.T, seed uint64, after time.Duration) (opened, found int, ran bool) {
	r := newPair(t, seed)
	reserved, goOn, hung, served := false, false, false, false
	md0 := r.Host("md0")
	var s1 *Server
	done := false
	r.begin("md0", unwrapped, func(s *Server, rt verbs.Runtime) {
		r.loseMemory(rt)
		h := r.Host("md1")
		h.Go("meta", false, func(ctx verbs.Context) {
			c := r.cfg
			c.Context, c.Manager = ctx, pausing(2, &reserved, &goOn)(h.Manager(ctx), ctx.Runtime())
			var err error
			if s1, err = New(c); err != nil {
				s1 = nil
			} else {
				for k := uint64(1); k <= 60; k++ {
					var a rpc.Answer
					s1.chains.open(&rpc.Request{Op: rpc.OpOpen, Key: k, At: layout.Location{Handle: s1.pool.segment(1, 0, 0) + layout.Handle(k), Version: 1}}, &a)
					if a.Status == rpc.OK {
						opened++
					}
				}
			}
			served = true
		})
		await(rt, &reserved)
		for i := range s.mem.memory {
			_ = s.mem.breakWays(i) // it has noticed the crash
		}
		r.At(rt.Now().Add(200*time.Microsecond+after), func() { hung = true; md0.HangAll() })
		for end := rt.Now().Add(100 * time.Millisecond); rt.Now() < end && !s.mem.deposed; rt.Sleep(time.Millisecond) {
			s.watchMemory(rt.Now())
		}
		_ = s.Close()
		done = true
	})
	r.Host("md1").Go("story", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		await(rt, &hung)
		goOn = true
		await(rt, &served)
		md0.ResumeAll()
		await(rt, &done)
		rt.Sleep(3 * time.Second)
		if ran = s1 != nil; !ran {
			return
		}
		_ = s1.Close()
		r.begin("md1", unwrapped, func(s2 *Server, _ verbs.Runtime) {
			for k := uint64(1); k <= 60; k++ {
				if s2.chains.keys[k] != nil {
					found++
				}
			}
		})
	})
	r.run()
	return opened, found, ran
}

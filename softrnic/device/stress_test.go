package device

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Many threads use both devices, some with a queue pair of their own, some with a shared one, and
// poll, block, list and wait at the same time. The sums show that each atomic was executed once.
func TestManyThreads(t *testing.T) {
	const threads, adds = 12, 150
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			d := openPair(t, spin, memcable.Config{})
			target := newNode(t, d[1].Context())
			ctx := d[0].Context()
			rt := ctx.Runtime()
			var finished atomic.Int64
			for i := range threads {
				a := newNode(t, ctx)
				peer, err := target.pd.CreateQP(verbs.QPInit{SendCQ: target.cq, RecvCQ: target.cq})
				must(t, err)
				connectPatiently(t, a, &node{ctx: target.ctx, qp: peer}, 16)
				rt.Go("client", func() {
					client(t, a, target, i, adds)
					finished.Add(1)
				})
			}
			rt.Go("listing", func() {
				for finished.Load() < threads {
					_ = d[0].Counters()
					d[0].With(listing)
					rt.Sleep(time.Millisecond)
				}
			})
			rt.Wait()
			if v, err := target.mr.Load64(0); v != threads*adds || err != nil {
				t.Errorf("sum %d, %v; want %d", v, err, threads*adds)
			}
			must(t, ctx.Close())
			if o := objects(d[0]); o.QPs+o.CQs+o.MRs+o.PDs != 0 {
				t.Errorf("Close left %+v", o)
			}
		})
	}
}

// client adds 1 to the target's first word, and uses all ways to wait in turn.
func client(t *testing.T, a, target *node, id, adds int) {
	r := rand.New(rand.NewPCG(uint64(id), 0))
	var wc [4]verbs.WC
	for range adds {
		if err := a.qp.PostSend(verbs.SendWR{Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: target.mr.Addr(), RKey: target.mr.RKey(), CompareAdd: 1}); err != nil {
			t.Error(err)
			return
		}
		for n := 0; n == 0; {
			var err error
			if r.IntN(3) == 0 {
				err = a.cq.Wait(a.in(20 * time.Second))
			}
			if err == nil {
				n, err = a.cq.Poll(wc[:])
			}
			if err != nil || n > 0 && wc[0].Status != verbs.Success {
				t.Errorf("client %d: %v, %v", id, err, wc[0].Status)
				return
			}
		}
	}
}

// Devices are closed while all threads work.
func TestCloseInFullSwing(t *testing.T) {
	for range 20 {
		d := openPair(t, 0, memcable.Config{})
		a, b := newNode(t, d[0].Context()), newNode(t, d[1].Context())
		connect(t, a, b)
		rt := a.ctx.Runtime()
		for range 4 {
			rt.Go("client", func() {
				var wc [8]verbs.WC
				for {
					err := a.qp.PostSend(verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 4000)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
					if isClosed(err) {
						return
					}
					if _, err := a.cq.Poll(wc[:]); isClosed(err) {
						return
					}
					if isClosed(a.cq.Wait(a.in(time.Millisecond))) {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // a different moment each time
		must(t, d[0].Close())
		rt.Wait()
	}
}

package device

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Threads of an application that hangs stop at posts, polls, waits and after Sleep; the NIC executes the
// requests of the peer. They go on at the end.
func TestHang(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			d, a, b := newPair(t, spin, memcable.Config{})
			var hang Hang
			ctx := d[1].HangingContext(&hang)
			cq, err := ctx.CreateCQ(4)
			must(t, err)
			var went atomic.Int32
			ready := make(chan struct{})
			calls := []func(){
				func() { _, _ = cq.Poll(make([]verbs.WC, 1)) },
				func() { _ = cq.Wait(ctx.Runtime().Now().Add(time.Millisecond)) },
				func() { ctx.Runtime().Sleep(time.Millisecond) },
				func() { _, _ = ctx.CreateCQ(4) },
				func() { ctx.Runtime().(interface{ AwaitHang() }).AwaitHang() },
			}
			hang.Begin()
			hang.Begin() // does nothing
			for _, call := range calls {
				ctx.Runtime().Go("thread", func() {
					ready <- struct{}{}
					call()
					went.Add(1)
				})
				<-ready
			}
			// The NIC of b answers a while, longer than any of the calls lasts.
			for end := a.ctx.Runtime().Now().Add(50 * time.Millisecond); a.ctx.Runtime().Now() < end; {
				must(t, a.qp.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
				if wc := a.one(t); wc.Status != verbs.Success {
					t.Fatalf("WRITE to a host whose application hangs: %+v", wc)
				}
			}
			if n := went.Load(); n != 0 {
				t.Errorf("%d of %d threads went on", n, len(calls))
			}
			hang.End()
			hang.End() // does nothing
			ctx.Runtime().Wait()
			must(t, ctx.Close())
		})
	}
}

// A thread that waits when the hang begins, and whose wait ends during the hang, goes on at its end.
func TestHangDuringAWait(t *testing.T) {
	d := openPair(t, 0, memcable.Config{})
	var hang Hang
	ctx := d[0].HangingContext(&hang)
	cq, err := ctx.CreateCQ(4)
	must(t, err)
	waits, ended := make(chan struct{}), make(chan error, 1)
	deadline := ctx.Runtime().Now().Add(100 * time.Millisecond)
	ctx.Runtime().Go("waits", func() {
		close(waits)
		ended <- cq.Wait(deadline)
	})
	<-waits
	hang.Begin()
	if ctx.Runtime().Now() < deadline { // otherwise the machine was so busy that the wait may have ended before
		select {
		case <-ended:
			t.Error("a wait ended during the hang")
		case <-time.After(200 * time.Millisecond):
		}
	}
	hang.End()
	ctx.Runtime().Wait()
	must(t, ctx.Close())
}

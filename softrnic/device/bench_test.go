package device

import (
	"sync/atomic"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// BenchmarkWriteRate measures 8-byte WRITEs with 64 in flight, posted in lists of 16 and polled in
// lists.
func BenchmarkWriteRate(b *testing.B) {
	_, x, y := newPair(b, 0, memcable.Config{})
	var list [16]verbs.SendWR
	for i := range list {
		list[i] = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{x.mr.SGE(0, 8)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}
	}
	var wc [64]verbs.WC
	b.ReportAllocs()
	posted, done := 0, 0
	for b.Loop() {
		for ; posted-done <= 48; posted += len(list) {
			must(b, x.qp.PostSend(list[:]...))
		}
		for target := done + 1; done < target; {
			n, err := x.cq.Poll(wc[:])
			must(b, err)
			if done += n; n == 0 {
				must(b, x.cq.Wait(clock.Never))
			}
		}
	}
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkReadLatency measures 8-byte READs, one after the other.
func BenchmarkReadLatency(b *testing.B) {
	_, x, y := newPair(b, 0, memcable.Config{})
	wr := []verbs.SendWR{{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{x.mr.SGE(0, 8)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}}
	var wc [1]verbs.WC
	b.ReportAllocs()
	for b.Loop() {
		must(b, x.qp.PostSend(wr...))
		for {
			if n, _ := x.cq.Poll(wc[:]); n > 0 {
				break
			}
			must(b, x.cq.Wait(clock.Never))
		}
	}
}

// BenchmarkRawEcho measures the ports in memory alone, one frame at a time, for comparison.
func BenchmarkRawEcho(b *testing.B) {
	p, q := memcable.Pair(memcable.Config{})
	w := memcable.NewWaiter(q)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var in packetio.Batch
		for w.Wait(-1) == nil {
			if n, err := q.Recv(&in); err != nil {
				return
			} else if n > 0 {
				_, _ = q.Send(&in)
			}
		}
	}()
	var out, in packetio.Batch
	out.Add(0, make([]byte, 78))
	for b.Loop() {
		_, _ = p.Send(&out)
		for {
			if n, _ := p.Recv(&in); n > 0 {
				break
			}
			pollpace.Pause(1, true)
		}
	}
	w.Close()
	<-done
	q.Close()
	p.Close()
}

// BenchmarkClients measures 16 threads on one device, each with one READ in flight, as systems with
// a coroutine a client do.
func BenchmarkClients(b *testing.B) {
	const clients = 16
	d := openPair(b, 0, memcable.Config{})
	target := newNode(b, d[1].Context())
	ctx := d[0].Context()
	rt := ctx.Runtime()
	nodes := make([]*node, clients)
	for i := range nodes {
		peer, err := target.pd.CreateQP(verbs.QPInit{SendCQ: target.cq, RecvCQ: target.cq})
		must(b, err)
		nodes[i] = newNode(b, ctx)
		connect(b, nodes[i], &node{ctx: target.ctx, qp: peer})
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	for _, a := range nodes {
		rt.Go("client", func() {
			wr := []verbs.SendWR{{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: target.mr.Addr(), RKey: target.mr.RKey()}}
			for left.Add(-1) >= 0 {
				must(b, a.qp.PostSend(wr...))
				a.one(b)
			}
		})
	}
	rt.Wait()
}

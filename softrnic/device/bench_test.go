package device

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/memory"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// BenchmarkWriteRate is 8-byte WRITEs with 64 outstanding, posted in lists of 16 and polled in lists.
func BenchmarkWriteRate(b *testing.B) {
	_, x, y := newPair(b, 0, memory.Config{})
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

// BenchmarkReadLatency is one 8-byte READ after the other.
func BenchmarkReadLatency(b *testing.B) {
	_, x, y := newPair(b, 0, memory.Config{})
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

// BenchmarkRawEcho is what the cable itself can do, one frame at a time, for comparison.
func BenchmarkRawEcho(b *testing.B) {
	p, q := memory.Pair(memory.Config{})
	w := memory.NewWaiter(0, q)
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
			yield()
		}
	}
	w.Close()
	<-done
	q.Close()
	p.Close()
}

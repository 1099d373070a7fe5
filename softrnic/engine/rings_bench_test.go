package engine

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// BenchmarkBesideEndlessRing measures WRITEs of a queue pair, alone and on a NIC that executes a program which
// loops for ever and has no client, at the pace of the clock. The fair share of the queue pair is half of what it
// does alone.
func BenchmarkBesideEndlessRing(b *testing.B) {
	for _, name := range []string{"alone", "beside"} {
		b.Run(name, func(b *testing.B) {
			r := newRinged(b)
			if name == "beside" {
				r.endless()
			}
			other, err := r.e.CreateQP(r.pd, r.cq, r.cq, verbs.QPInit{})
			if err != nil {
				b.Fatal(err)
			}
			connect(b, r.now, other, other, 0, verbs.MTU1024)
			cq, err := r.cq.Queue()
			if err != nil {
				b.Fatal(err)
			}
			wr := []verbs.SendWR{{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{r.sge(dataAt, 8)}, RemoteAddr: r.base + dataAt + 8, RKey: r.key}}
			var wc [4]verbs.WC
			began, start := r.now, time.Now()
			entries := r.e.Counters().RingEntries
			for b.Loop() {
				r.now = began + clock.Time(time.Since(start))
				if err := other.PostSend(r.now, wr, &r.out); err != nil {
					b.Fatal(err)
				}
				if r.e.Deadline() <= r.now {
					r.e.Tick(r.now, &r.out)
				}
				if n := cq.Poll(wc[:]); n != 1 || wc[0].Status != verbs.Success {
					b.Fatalf("%d completions, %v", n, wc[0].Status)
				}
				r.out.Reset()
			}
			b.ReportMetric(float64(r.e.Counters().RingEntries-entries)/float64(b.N), "entries/op")
		})
	}
}

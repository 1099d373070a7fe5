package ipc_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// load keeps work requests of one size in flight and counts those that complete.
type load struct {
	cq    verbs.CQ
	qps   []verbs.QP
	wr    verbs.SendWR
	depth int
	done  atomic.Int64
}

// newLoad connects queue pairs of a context with as many of another one. Each keeps depth WRITEs of
// size bytes in flight.
func newLoad(t testing.TB, from, to verbs.Context, qps, depth, size int) *load {
	t.Helper()
	l := &load{depth: depth}
	side := func(ctx verbs.Context) (verbs.PD, verbs.CQ, verbs.MR) {
		pd, err := ctx.AllocPD()
		must(t, err)
		cq, err := ctx.CreateCQ(qps*depth + 1)
		must(t, err)
		mr, err := pd.RegMR(nil, max(size, 64), verbs.LocalWrite|verbs.RemoteWrite)
		must(t, err)
		return pd, cq, mr
	}
	pd, cq, mr := side(from)
	peerPD, peerCQ, peerMR := side(to)
	l.cq = cq
	l.wr = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, size)}, RemoteAddr: peerMR.Addr(), RKey: peerMR.RKey()}
	for range qps {
		init := verbs.QPInit{MaxSendWR: depth, MaxRecvWR: 1}
		init.SendCQ, init.RecvCQ = cq, cq
		a, err := pd.CreateQP(init)
		must(t, err)
		init.SendCQ, init.RecvCQ = peerCQ, peerCQ
		b, err := peerPD.CreateQP(init)
		must(t, err)
		must(t, join(a, b, from, to))
		must(t, join(b, a, to, from))
		l.qps = append(l.qps, a)
	}
	return l
}

// join connects a queue pair to a peer and brings it to RTS.
func join(qp, peer verbs.QP, own, other verbs.Context) error {
	if err := qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead}); err != nil {
		return err
	}
	if err := qp.ToRTR(verbs.ToRTR{DestQPN: peer.QPN(), DestGID: other.Device().GIDs[0], PathMTU: verbs.MTU1024}); err != nil {
		return err
	}
	return qp.ToRTS(verbs.ToRTS{Timeout: 18, RetryCount: 7, RNRRetry: 7})
}

// run keeps the queues full until stop.
func (l *load) run(stop *atomic.Bool) error {
	byQPN := map[uint32]verbs.QP{}
	for _, qp := range l.qps {
		byQPN[uint32(qp.QPN())] = qp
		for range l.depth {
			if err := qp.PostSend(l.wr); err != nil {
				return err
			}
		}
	}
	flying := len(l.qps) * l.depth
	wcs := make([]verbs.WC, 16)
	for flying > 0 {
		n, err := l.cq.Poll(wcs)
		if err != nil {
			return err
		}
		runtime.Gosched() // the test's goroutines may have one processor in all; each turn handles the completions of one poll
		for _, wc := range wcs[:n] {
			if wc.Status != verbs.Success {
				return fmt.Errorf("WRITE: %v", wc.Status)
			}
			flying--
			l.done.Add(1)
			if !stop.Load() {
				if err := byQPN[uint32(wc.QPN)].PostSend(l.wr); err != nil {
					return err
				}
				flying++
			}
		}
	}
	return nil
}

// share runs loads at the same time and returns the operations of each in a second.
func share(t testing.TB, d time.Duration, loads ...*load) []float64 {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(loads))
	for i, l := range loads {
		wg.Go(func() { errs[i] = l.run(&stop) })
	}
	time.Sleep(d / 4) // all are at work
	before := make([]int64, len(loads))
	for i, l := range loads {
		before[i] = l.done.Load()
	}
	start := time.Now()
	time.Sleep(d)
	out := make([]float64, len(loads))
	for i, l := range loads {
		out[i] = float64(l.done.Load()-before[i]) / time.Since(start).Seconds()
	}
	stop.Store(true)
	wg.Wait()
	for _, err := range errs {
		must(t, err)
	}
	return out
}

// crowd is the programs of a NIC, each with one load, and the daemon's own load behind them.
func (h *house) crowd(t testing.TB, programs int, one func(from, to verbs.Context) *load) []*load {
	t.Helper()
	var loads []*load
	for range programs {
		loads = append(loads, one(h.open(t, 0), h.dev[1].Context()))
	}
	return append(loads, one(h.dev[0].Context(), h.dev[1].Context()))
}

// leastShare is the least part that a program gets of what another program with the same load does.
// All programs run in this process, and the scheduler gives one goroutine the processor for longer
// than another.
const leastShare = 0.25

// balance runs loads until fair accepts how many operations each has done. A machine with other work
// stops one goroutine or another for a while: that evens out with the time, and a preference of the
// NIC or the daemon for a program does not.
func balance(t *testing.T, fair func(done []float64) bool, loads ...*load) {
	t.Helper()
	const (
		least   = 300 * time.Millisecond // the start of the loads counts for little then
		enough  = 200                    // operations of the slowest, fifty times what it keeps in flight
		atMost  = 2 * time.Minute        // some operations a second, as with ten busy threads beside a processor
		between = 10 * time.Millisecond
	)
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(loads))
	for i, l := range loads {
		wg.Go(func() { errs[i] = l.run(&stop) })
	}
	done := make([]float64, len(loads))
	begin := time.Now()
	for time.Sleep(least); ; time.Sleep(between) {
		for i, l := range loads {
			done[i] = float64(l.done.Load())
		}
		if slices.Min(done) >= enough && fair(done) {
			break
		}
		if time.Since(begin) > atMost {
			t.Error("a load does not get its share")
			break
		}
	}
	t.Logf("%.0f operations", done)
	stop.Store(true)
	wg.Wait()
	for _, err := range errs {
		must(t, err)
	}
}

// Programs with the same load get about the same rate, the daemon gets no less, and a program with
// a hundred times the load leaves the others their shares.
func TestShares(t *testing.T) {
	h := newHouse(t, 0, nil)
	small := func(from, to verbs.Context) *load { return newLoad(t, from, to, 1, 4, 8) }
	balance(t, func(done []float64) bool { // four programs, then the daemon
		return slices.Min(done) >= leastShare*slices.Max(done[:4])
	}, h.crowd(t, 4, small)...)
	greedy := append(h.crowd(t, 2, small), newLoad(t, h.open(t, 0), h.dev[1].Context(), 50, 8, 8))
	balance(t, func(done []float64) bool { // two programs, the daemon, and one with a hundred times as many
		return slices.Min(done[:3]) >= done[3]/20
	}, greedy...)
}

// BenchmarkShares measures programs and the daemon at work at the same time: the rates of the
// slowest and the fastest program and of the daemon, in operations a second.
func BenchmarkShares(b *testing.B) {
	for name, c := range map[string]struct{ qps, depth, size int }{
		"8bytes": {1, 16, 8}, "64KiB": {1, 4, 64 << 10}, "manyQPs": {32, 4, 8},
	} {
		for _, programs := range []int{1, 4, 8} {
			b.Run(fmt.Sprint(name, "/programs-", programs), func(b *testing.B) {
				h := newHouse(b, 0, nil)
				loads := h.crowd(b, programs, func(from, to verbs.Context) *load { return newLoad(b, from, to, c.qps, c.depth, c.size) })
				rates := make([]float64, len(loads))
				for b.Loop() {
					for i, r := range share(b, 500*time.Millisecond, loads...) {
						rates[i] += r
					}
				}
				own := rates[:programs]
				b.ReportMetric(slices.Min(own)/float64(b.N), "least/s")
				b.ReportMetric(slices.Max(own)/float64(b.N), "most/s")
				b.ReportMetric(rates[programs]/float64(b.N), "daemon/s")
			})
		}
	}
}

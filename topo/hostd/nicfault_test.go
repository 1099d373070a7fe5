package hostd

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// waitForQPs returns the host's queue pairs in RTS once there are some.
func waitForQPs(t *testing.T, get func() Status) (qpns []wire.QPN) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, q := range get().QPs {
			if q.State == "RTS" {
				qpns = append(qpns, wire.QPN(q.QPN))
			}
		}
		if len(qpns) > 0 {
			return qpns
		}
	}
	t.Fatal("no queue pair comes to RTS")
	return nil
}

// Each fault of a NIC ends the job that runs on it, and the next job is not affected.
func TestNICFaults(t *testing.T) {
	_, cn, ms := up(t)
	for _, kind := range []string{FaultQPError, FaultCQOverrun, FaultUnplug} {
		t.Run(kind, func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				_, err := runPerf(t.Context(), cn, perf.Config{Test: perf.WriteLat, To: "ms0", Size: 8, Iters: 50_000_000})
				done <- err
			}()
			qpns := waitForQPs(t, func() Status { return status(t, cn) })
			f := NICFault{Kind: kind}
			if kind == FaultQPError {
				f.QPN = qpns[0]
			}
			var res NICFaultResult
			if err := cn.Call(t.Context(), "POST", PathNICFault, f, &res); err != nil {
				t.Fatal(err)
			}
			if len(res.QPNs) == 0 {
				t.Error("nothing was hit")
			}
			select {
			case err := <-done:
				if err == nil {
					t.Error("the job succeeded")
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the job does not end")
			}
			if kind == FaultUnplug {
				if err := cn.Call(t.Context(), "POST", PathNIC, NICRequest{StateUp}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if v := verify(t, cn); !v.OK {
				t.Errorf("afterwards: %+v", v)
			}
		})
	}
	for name, c := range map[string]struct {
		fault NICFault
		want  int
	}{
		"unknown":         {NICFault{Kind: "smoke"}, http.StatusBadRequest},
		"unplug of one":   {NICFault{Kind: FaultUnplug, QPN: 7}, http.StatusBadRequest},
		"no QP":           {NICFault{Kind: FaultQPError, QPN: 7}, http.StatusConflict},
		"no QP's program": {NICFault{Kind: FaultStop, QPN: 7}, http.StatusConflict},
		"no QP's overrun": {NICFault{Kind: FaultCQOverrun, QPN: 7}, http.StatusConflict},
	} {
		err := ms.Call(t.Context(), "POST", PathNICFault, c.fault, nil)
		if !isStatus(err, c.want) || (c.want == http.StatusConflict && !strings.Contains(err.Error(), "status")) {
			t.Errorf("%s: %v, want %d", name, err, c.want)
		}
	}
	var none NICFaultResult
	if err := ms.Call(t.Context(), "POST", PathNICFault, NICFault{Kind: FaultQPError}, &none); err != nil {
		t.Errorf("all: %v", err)
	}
	for range 2 { // a second unplug is no error
		if err := ms.Call(t.Context(), "POST", PathNICFault, NICFault{Kind: FaultUnplug}, nil); err != nil {
			t.Errorf("unplug: %v", err)
		}
	}
	if err := ms.Call(t.Context(), "POST", PathNICFault, NICFault{Kind: FaultQPError}, nil); !isStatus(err, http.StatusConflict) {
		t.Errorf("of a NIC that is down: %v", err)
	}
}

// endless lets a host's NIC execute a program that goes on for minutes without a processor. It returns
// the program's queue pair, and one beside it.
func endless(t *testing.T, h *Host) (program, other verbs.QP) {
	t.Helper()
	fails := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := h.dev.Context()
	t.Cleanup(func() { _ = ctx.Close() })
	pd, err := ctx.AllocPD()
	fails(err)
	cq, err := ctx.CreateCQ(16)
	fails(err)
	nop := sendring.Entry{Op: sendring.NOP}
	image := append(nop.AppendTo(nil), make([]byte, sendring.BlockSize-nop.Len())...)
	mr, err := pd.RegMR(image, len(image), verbs.LocalWrite)
	fails(err)
	create := func() verbs.QP {
		q, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
		fails(err)
		return q
	}
	program, other = create(), create()
	ring := program.(verbs.RingQP)
	fails(ring.UseRing(verbs.RingInit{Addr: mr.Addr(), LKey: mr.LKey(), Blocks: 1}))
	for _, q := range []verbs.QP{program, other} {
		fails(q.ToInit(verbs.ToInit{}))
		fails(q.ToRTR(verbs.ToRTR{DestQPN: q.QPN(), DestGID: ctx.Device().GIDs[0], PathMTU: verbs.MTU1024}))
		fails(q.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}))
	}
	fails(ring.Doorbell(math.MaxInt32)) // six minutes, at 0.17 us each
	return program, other
}

// executed returns how many entries of rings a NIC has executed.
func executed(h *Host) (n uint64) {
	h.dev.With(func(e *engine.Engine) { n = e.Counters().RingEntries })
	return n
}

// stop ends a program that does not end by itself, and no other queue pair.
func TestNICFaultStop(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	a, _ := memcable.Pair(memcable.Config{})
	h := start(t, dir, &r.Hosts[0], a)
	cn := control.NewClient(rackfile.Paths{Dir: dir}.Socket("cn0"))
	for _, named := range []bool{true, false} {
		program, other := endless(t, h)
		before := executed(h)
		eventually(t, "an entry is executed", func() bool { return executed(h) > before })
		f := NICFault{Kind: FaultStop, QPN: other.QPN()}
		if err := cn.Call(t.Context(), "POST", PathNICFault, f, nil); !isStatus(err, http.StatusConflict) {
			t.Errorf("a queue pair without a program: %v", err)
		}
		if f.QPN = program.QPN(); !named {
			f.QPN = 0
		}
		for _, q := range status(t, cn).QPs {
			if q.State == "RTS" && q.Ring != (q.QPN == uint32(program.QPN())) {
				t.Errorf("status: %+v", q)
			}
		}
		var res NICFaultResult
		if err := cn.Call(t.Context(), "POST", PathNICFault, f, &res); err != nil {
			t.Fatal(err)
		}
		if len(res.QPNs) != 1 || res.QPNs[0] != program.QPN() {
			t.Errorf("%v were hit, want %v", res.QPNs, program.QPN())
		}
		for want, q := range map[verbs.QPState]verbs.QP{verbs.StateError: program, verbs.StateRTS: other} {
			if got, err := q.Query(); err != nil || got.State != want {
				t.Errorf("named %t: %v, %v, want %v", named, got.State, err, want)
			}
		}
		last := executed(h)
		if v := status(t, cn); v.NIC.State != StateUp || executed(h) != last {
			t.Errorf("%d entries are executed after the end", executed(h)-last)
		}
	}
}

package hostd

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/perf"
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

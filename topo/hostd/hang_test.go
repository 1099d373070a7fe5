package hostd

import (
	"context"
	"net/http"
	"testing"

	clover "github.com/rdmalab/rdmalab/clover/plugin"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/store"
)

// post sends a request without a body to a host.
func post(t *testing.T, c *control.Client, path string) error {
	t.Helper()
	return c.Call(t.Context(), http.MethodPost, path, nil, nil)
}

// While the application hangs, its NIC executes the requests of connected peers, its daemon answers,
// and what needs the application is refused.
func TestHangApp(t *testing.T) {
	_, cn, ms := up(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := runPerf(ctx, cn, perf.Config{Test: perf.WriteBW, To: "ms0", Iters: 100_000_000, Path: perf.Path{Timeout: 13}})
		ended <- err
	}()
	// received returns the PSN that the only connection of ms0 expects; 0 before there is one.
	received := func() (psn uint32) {
		for _, q := range status(t, ms).QPs {
			if q.Type == "RC" && q.State == "RTS" {
				psn = q.RecvPSN
			}
		}
		return psn
	}
	eventually(t, "WRITEs arrive", func() bool { a := received(); return a != 0 && received() != a })
	if err := post(t, ms, PathHangApp); err != nil {
		t.Fatal(err)
	}
	if st := status(t, ms); st.App != StateHung || len(st.Services) != 2 || len(st.Regions) != 2 {
		t.Errorf("status: %+v", st)
	}
	for range 3 {
		was := received()
		eventually(t, "WRITEs arrive while the application hangs", func() bool { return received() != was })
	}
	start := clover.Store.Path(store.PathStart)
	for _, path := range []string{PathHangApp, PathStartApp, start} {
		if err := post(t, ms, path); !isStatus(err, http.StatusConflict) {
			t.Errorf("%s while the application hangs: %v", path, err)
		}
	}
	if _, err := runPerf(t.Context(), ms, perf.Config{Test: perf.SendBW, To: "cn0"}); !isStatus(err, http.StatusConflict) {
		t.Errorf("a test while the application hangs: %v", err)
	}
	if err := post(t, ms, PathResumeApp); err != nil {
		t.Fatal(err)
	}
	if err := post(t, ms, PathResumeApp); !isStatus(err, http.StatusConflict) {
		t.Errorf("a second resume: %v", err)
	}
	if v := verify(t, cn); !v.OK {
		t.Errorf("a new connection: %+v", v)
	}
	cancel()
	<-ended
}

// A service that hangs accepts no connection. It accepts the connection when it goes on.
func TestHungServiceAcceptsLater(t *testing.T) {
	_, cn, ms := up(t)
	connections := func(c *control.Client) (n int) {
		for _, q := range status(t, c).QPs {
			if q.Type == "RC" {
				n++
			}
		}
		return n
	}
	if err := post(t, ms, PathHangApp); err != nil {
		t.Fatal(err)
	}
	ended := make(chan VerifyItem, 1)
	go func() {
		v := VerifyItem{}
		_ = control.Items(t.Context(), cn, "POST", PathVerify, nil, func(i VerifyItem) error { v = i; return nil })
		ended <- v
	}()
	eventually(t, "the client asks for a connection", func() bool { return connections(cn) > 0 })
	for range 20 {
		if n := connections(ms); n > 0 {
			t.Fatalf("a service that hangs has %d connections", n)
		}
	}
	if err := post(t, ms, PathResumeApp); err != nil {
		t.Fatal(err)
	}
	if v := <-ended; !v.OK {
		t.Errorf("after the hang: %+v", v)
	}
}

// A job that hangs does nothing. A crash of the application, or of the NIC, ends the hang.
func TestHungJob(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, cn *control.Client) error{
		"application": func(t *testing.T, cn *control.Client) error { t.Helper(); return post(t, cn, PathCrashApp) },
		"NIC": func(t *testing.T, cn *control.Client) error {
			t.Helper()
			return cn.Call(t.Context(), http.MethodPost, PathNIC, NICRequest{State: StateDown}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, cn, _ := up(t)
			ended := make(chan error, 1)
			go func() {
				_, err := runPerf(t.Context(), cn, perf.Config{Test: perf.WriteBW, To: "ms0", Iters: 100_000_000, Path: perf.Path{Timeout: 13}})
				ended <- err
			}()
			requests := func() (n uint64) {
				var c Counters
				if err := cn.Call(t.Context(), http.MethodGet, PathCounters, nil, &c); err != nil {
					t.Fatal(err)
				}
				for _, s := range c.Samples {
					if s.Name == "rdma_sends" {
						n = s.Value
					}
				}
				return n
			}
			eventually(t, "the job runs", func() bool { return requests() > 1000 })
			if err := post(t, cn, PathHangApp); err != nil {
				t.Fatal(err)
			}
			// Requests that are posted are sent and answered. Then nothing more is posted.
			eventually(t, "the job's queue pair has nothing in flight", func() bool {
				for _, q := range status(t, cn).QPs {
					if q.SendQueued > 0 {
						return false
					}
				}
				return true
			})
			was := requests()
			for range 20 {
				status(t, cn)
			}
			if now := requests(); now != was {
				t.Errorf("a job that hangs posted %d requests", now-was)
			}
			if err := end(t, cn); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Error("the job goes on after the crash")
			}
			if err := cn.Call(t.Context(), http.MethodPost, PathNIC, NICRequest{State: StateUp}, nil); err != nil {
				t.Fatal(err)
			}
			if err := post(t, cn, PathStartApp); err != nil {
				t.Fatal(err)
			}
			if v := verify(t, cn); !v.OK {
				t.Errorf("after the crash: %+v", v)
			}
		})
	}
}

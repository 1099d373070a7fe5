package hostd

import (
	"context"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// held starts a run whose connections are held. It returns when the host holds them, with a channel
// for the error of the run.
func held(t *testing.T, ctx context.Context, cn *control.Client) chan error {
	t.Helper()
	cfg := perf.Config{Test: perf.Locks, To: "ms0", OneWord: perf.OneWord{Clients: 2, Span: time.Millisecond, Held: "a"}}
	holds, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- control.Items(ctx, cn, "POST", PathPerf, cfg, func(ev perf.Event) error {
			if ev.Held {
				close(holds)
			}
			return nil
		})
	}()
	select {
	case <-holds:
	case err := <-ended:
		t.Fatalf("the run was not held: %v", err)
	}
	return ended
}

// The connections of a held run stay until the run is released, and no longer than its application
// and the client of its request.
func TestHeldRuns(t *testing.T) {
	_, cn, _ := up(t)
	release := func(key string) error {
		return cn.Call(t.Context(), "POST", PathRelease, ReleaseRequest{key}, nil)
	}
	connections := func() int { return len(status(t, cn).QPs) }
	var leave context.CancelFunc
	for how, end := range map[string]func() error{
		"released":            func() error { return release("a") },
		"application crashed": func() error { return cn.Call(t.Context(), "POST", PathCrashApp, nil, nil) },
		"the client has gone": func() error { leave(); return nil },
	} {
		t.Run(how, func(t *testing.T) {
			if err := cn.Call(t.Context(), "POST", PathStartApp, nil, nil); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leave = cancel
			before := connections()
			ended := held(t, ctx, cn)
			if release("b") == nil {
				t.Error("a run was released that does not exist")
			}
			if n := connections(); n < before+2 {
				t.Errorf("%d queue pairs while the run is held, %d before", n, before)
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; (err == nil) != (how == "released") {
				t.Error(err)
			}
			eventually(t, "the connections have ended", func() bool { return connections() <= before })
			if release("a") == nil {
				t.Error("a run was released twice")
			}
		})
	}
}

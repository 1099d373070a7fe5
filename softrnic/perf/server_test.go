package perf_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// rig is a rack in virtual time with a server and a client.
type rig struct {
	*simrack.Rack
	t        *testing.T
	srv, cli *simrack.Host
}

// newRig serves the memory service, or the benchmark service if cfg names none.
func newRig(t *testing.T, cfg memservice.Config) *rig {
	t.Helper()
	s, err := rackfile.Parse([]byte("{name: t, hosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, simrack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	rg := &rig{Rack: r, t: t, srv: r.Host("ms0"), cli: r.Host("cn0")}
	rg.srv.Go("server", true, func(ctx verbs.Context) {
		start := memservice.New
		if cfg.Service == "" {
			start = perf.NewServer
		}
		srv, err := start(ctx, rg.srv.Manager(ctx), cfg)
		if err == nil {
			err = srv.Serve()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return rg
}

// client runs f as the client's application, to the end.
func (r *rig) client(f func(ctx verbs.Context, m rdmacm.Manager)) {
	r.t.Helper()
	r.cli.Go("client", false, func(ctx verbs.Context) { f(ctx, r.cli.Manager(ctx)) })
	if err := r.Run(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) run(ctx verbs.Context, m rdmacm.Manager, cfg perf.Config) (perf.Result, error) {
	return perf.Run(ctx, m, r.srv.Addr(), cfg, nil)
}

// A run leaves nothing behind on either side.
func TestRunsLeaveNothing(t *testing.T) {
	r := newRig(t, memservice.Config{})
	var before engine.Objects
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		before = r.srv.Engine().Tables.Objects()
		for _, test := range perf.Tests() {
			if test == perf.Contend || test == perf.Locks {
				continue // the connection is one to the memory service, which keeps connections
			}
			cfg := perf.Config{Test: test, Service: perf.PerfService, Iters: 10, Atomics: 10, Verify: true}
			if _, err := r.run(ctx, m, cfg); err != nil {
				t.Errorf("%s: %v", test, err)
			}
		}
	})
	if err := r.Settle(time.Second); err != nil {
		t.Fatal(err)
	}
	if after := r.srv.Engine().Tables.Objects(); after != before {
		t.Errorf("server has %+v, before the runs %+v", after, before)
	}
	if left := r.cli.Engine().Tables.Objects(); left != (engine.Objects{}) {
		t.Errorf("client has %+v left", left)
	}
}

func TestServerRefuses(t *testing.T) {
	r := newRig(t, memservice.Config{Service: memservice.Service, Memory: 1 << 20})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		for _, tc := range []struct {
			cfg  perf.Config
			want string
		}{
			{perf.Config{Test: perf.SendBW, Service: memservice.Service}, "passive"},
			{perf.Config{Test: perf.WriteBW, Service: memservice.Service, Size: 16 << 20, Depth: 1, Verify: true}, "bytes of memory wanted"},
			{perf.Config{Test: perf.WriteBW, Service: "nonsense"}, "no service"},
		} {
			if _, err := r.run(ctx, m, tc.cfg); !errors.Is(err, rdmacm.ErrRejected) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v: error %v, want a refusal about %q", tc.cfg, err, tc.want)
			}
		}
		// A refused run leaves nothing behind.
		if _, err := r.run(ctx, m, perf.Config{Test: perf.Verify}); err != nil {
			t.Error(err)
		}
	})
}

// A server that dies during a run is reported as an error, within the time of the retries.
func TestServerDies(t *testing.T) {
	for _, test := range []string{perf.WriteBW, perf.ReadLat, perf.SendBW, perf.AtomicBW, perf.Soak} {
		t.Run(test, func(t *testing.T) {
			r := newRig(t, memservice.Config{})
			r.At(clock.Time(300*time.Microsecond), r.srv.CrashNIC)
			r.client(func(ctx verbs.Context, m rdmacm.Manager) {
				res, err := r.run(ctx, m, perf.Config{Test: test, Iters: 1_000_000, Path: perf.Path{Timeout: 10, RetryCount: 2}})
				if res.BW != nil && (res.BW.Iters == 0 || res.BW.Iters == 1_000_000) {
					t.Errorf("%d messages are said to be complete", res.BW.Iters)
				}
				var ce *perf.CompletionError
				if !errors.As(err, &ce) || ce.Status != verbs.RetryExcErr || !strings.Contains(err.Error(), "rdmalab status") {
					t.Errorf("error %v, want a completion error that says what to look at", err)
				}
			})
			if left := r.cli.Engine().Tables.Objects(); left != (engine.Objects{}) {
				t.Errorf("client has %+v left", left)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t, memservice.Config{})
	r.srv.SetFaults([]fault.Rule{{Link: "ms0", Kind: fault.Loss}})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		end := ctx.Runtime().Now().Add(time.Second)
		cfg := perf.Config{Test: perf.WriteBW, Path: perf.Path{Timeout: 25}, Hooks: perf.Hooks{Cancelled: func() bool { return ctx.Runtime().Now() >= end }}}
		if _, err := r.run(ctx, m, cfg); !errors.Is(err, perf.ErrCancelled) {
			t.Errorf("error %v, want %v", err, perf.ErrCancelled)
		}
		if now := ctx.Runtime().Now(); now > end.Add(2*time.Second) {
			t.Errorf("ended at %v, was cancelled at %v", now, end)
		}
	})
}

// A run that waits for the server's count of messages can be cancelled: the server's program hangs,
// and its NIC receives all messages.
func TestCancelWhileTheServerHangs(t *testing.T) {
	r := newRig(t, memservice.Config{})
	received := func() uint64 { return r.srv.Counters().RdmaRecvs }
	r.cli.Go("hang", true, func(ctx verbs.Context) {
		for received() == 0 {
			ctx.Runtime().Sleep(time.Microsecond)
		}
		r.srv.HangApps()
	})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		var end clock.Time
		cfg := perf.Config{Test: perf.SendBW, Iters: 200, RecvSlack: 400, Hooks: perf.Hooks{Cancelled: func() bool {
			now := ctx.Runtime().Now()
			if received() >= 200 && end == 0 {
				end = now.Add(time.Second)
			}
			return end != 0 && now >= end
		}}}
		if _, err := r.run(ctx, m, cfg); !errors.Is(err, perf.ErrCancelled) {
			t.Errorf("error %v, want %v", err, perf.ErrCancelled)
		}
		if now := ctx.Runtime().Now(); now > end.Add(2*time.Second) {
			t.Errorf("ended at %v, was cancelled at %v", now, end)
		}
	})
}

// The patience ends a run whose queue pair waits for ever.
func TestPatience(t *testing.T) {
	r := newRig(t, memservice.Config{})
	r.srv.SetFaults([]fault.Rule{{Link: "ms0", Kind: fault.Loss}})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		_, err := r.run(ctx, m, perf.Config{Test: perf.ReadLat, Path: perf.Path{Timeout: 31}, Patience: 3 * time.Second})
		if err == nil || !strings.Contains(err.Error(), "no completion within 3s") {
			t.Errorf("error %v", err)
		}
	})
}

// Clients that never disconnect do not fill the server: it closes the oldest connection.
func TestServerForgetsTheOldest(t *testing.T) {
	r := newRig(t, memservice.Config{})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		for i := range 300 {
			pd, err := ctx.AllocPD()
			if err != nil {
				t.Fatal(err)
			}
			cq, err := ctx.CreateCQ(1)
			if err != nil {
				t.Fatal(err)
			}
			qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := memservice.DialService(m, qp, r.srv.Addr(), perf.PerfService, rdmacm.Params{}, memservice.Claim{Bytes: 64}, clock.Never); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			if err := errors.Join(qp.Destroy(), cq.Destroy(), pd.Dealloc()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.run(ctx, m, perf.Config{Test: perf.Soak, Iters: 3, Atomics: 3}); err != nil {
			t.Error(err)
		}
	})
	if n := r.srv.Engine().Tables.Objects().QPs; n > 256 {
		t.Errorf("%d queue pairs", n)
	}
}

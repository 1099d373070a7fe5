package simrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const small = `
name: small
hosts:
  - {name: cn0, role: compute}
  - {name: ms0, role: memory}
`

func newRack(t *testing.T, yaml string, opt Options) *Rack {
	t.Helper()
	s, err := rackfile.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// serve starts the memory and the perf service on a host.
func serve(t *testing.T, h *Host) {
	for _, name := range []string{memservice.Service, perf.PerfService} {
		h.Go(name, true, func(ctx verbs.Context) {
			start := memservice.New
			if name == perf.PerfService {
				start = perf.NewServer
			}
			s, err := start(ctx, h.Manager(ctx), memservice.Config{Region: 4096})
			if err == nil {
				err = s.Serve()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryPerfTestRuns(t *testing.T) {
	for _, test := range perf.Tests() {
		t.Run(test, func(t *testing.T) {
			r := newRack(t, small, Options{})
			serve(t, r.Host("ms0"))
			cn := r.Host("cn0")
			var res perf.Result
			var err error
			cn.Go("client", false, func(ctx verbs.Context) {
				cfg := perf.Config{Test: test, Iters: 100, Atomics: 100, Verify: true, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
				if test == perf.Locks {
					cfg.Span = 10 * time.Millisecond // the experiment runs for a time, not for a number of iterations
				}
				res, err = perf.Run(ctx, cn.Manager(ctx), r.Host("ms0").Addr(), cfg, nil)
			})
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if l := res.Locks; res.Verified+res.VerifiedAtomics+res.Swapped == 0 && (l == nil || l.Acquired == 0) {
				t.Error("nothing was verified")
			}
			if err := res.WriteText(t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
}

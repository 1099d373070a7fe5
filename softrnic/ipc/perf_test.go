package ipc_test

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The workloads of package perf run with both ends attached to daemons, and find no wrong byte.
func TestWorkloads(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, spin, nil)
			a, b := h.open(t, 0), h.open(t, 1)
			cm := b.Manager()
			srv, err := perf.NewServer(b, cm, memservice.Config{})
			must(t, err)
			served := make(chan error, 1)
			go func() { served <- srv.Serve() }()
			dialer := a.Manager()
			for _, cfg := range []perf.Config{
				{Test: perf.WriteBW, Size: 20000, Iters: 200, Verify: true},
				{Test: perf.ReadBW, Size: 20000, Iters: 200, Verify: true},
				{Test: perf.SendBW, Size: 5000, Iters: 200, Verify: true},
				{Test: perf.AtomicBW, Iters: 200, Verify: true},
				{Test: perf.ReadLat, Iters: 100},
				{Test: perf.SendLat, Iters: 100},
				{Test: perf.Soak, Size: 3000, Iters: 50, Atomics: 50},
			} {
				cfg.Service = perf.PerfService
				if _, err := perf.Run(a, dialer, ips[1], cfg, nil); err != nil {
					t.Errorf("%s: %v", cfg.Test, err)
				}
			}
			must(t, srv.Close())
			if err := <-served; err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("server: %v", err)
			}
			b.Runtime().Wait()
			must(t, a.Close())
			must(t, b.Close())
			h.empty(t)
		})
	}
}

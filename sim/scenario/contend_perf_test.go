package scenario

import (
	"fmt"
	"testing"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The test contend of package perf sends as many CAS as configured, and each that succeeded has
// changed the word.
func TestPerfContend(t *testing.T) {
	for _, clients := range []int{1, 7, 64} {
		const iters = 2000
		var res perf.Result
		s := Scenario{Name: "contend", run: func(e *env) error {
			if err := e.build(transportRack, simrack.Options{Datagrams: true}); err != nil {
				return err
			}
			h := e.rack.Host(server)
			h.Go(memservice.Service, true, func(ctx verbs.Context) {
				srv, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: 4096})
				if err == nil {
					err = srv.Serve()
				}
				if err != nil {
					e.fail("server: %w", err)
				}
			})
			cfg := perf.Config{Test: perf.Contend, OneWord: perf.OneWord{Clients: clients}, Iters: iters, To: server}
			before := e.rack.Host("cn0").Engine().Tables.Objects()
			e.client("cn0", "contend", e.soakClient("cn0", cfg, &res))
			if err := e.run(); err != nil {
				return err
			}
			if n := h.Counters().RxAtomicRequests; n != iters {
				return fmt.Errorf("the server executed %d CAS, want %d", n, iters)
			}
			if after := e.rack.Host("cn0").Engine().Tables.Objects(); after != before {
				return fmt.Errorf("the client left %+v, before %+v", after, before)
			}
			return nil
		}}
		if r := s.Run(1, Options{}); r.Err != nil {
			t.Fatalf("%d clients: %v", clients, r.Err)
		}
		if res.BW == nil || res.BW.Iters != iters || res.Swapped == 0 || res.Swapped > iters || clients == 1 && res.Swapped != iters {
			t.Errorf("%d clients: %+v, %d CAS changed the word", clients, res.BW, res.Swapped)
		}
	}
	if err := (&perf.Config{Test: perf.WriteBW, OneWord: perf.OneWord{Clients: 2}}).Validate(); err == nil {
		t.Error("several clients of a bandwidth test are accepted")
	}
}

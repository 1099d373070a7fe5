package simrack

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// bandwidth runs WRITEs of 64 KiB at path MTU 1024 over links of 1 Gb/s with a round trip of 4 ms,
// and returns MiB in a second of virtual time. keys are further keys of the client's host.
func bandwidth(t *testing.T, keys string) float64 {
	t.Helper()
	file := fmt.Sprintf("hosts:\n  - {name: cn0, role: compute%s}\n  - {name: ms0, role: memory}\n", keys)
	r := newRack(t, file, Options{Delay: time.Millisecond, Rate: 1e9, Queue: 1 << 15})
	serve(t, r.Host("ms0"))
	cn := r.Host("cn0")
	res := perf.Result{BW: new(perf.Bandwidth)}
	cn.Go("client", false, func(ctx verbs.Context) {
		cfg := perf.Config{Test: perf.WriteBW, Iters: 400, Path: perf.Path{MTU: 1024}, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
		var err error
		if res, err = perf.Run(ctx, cn.Manager(ctx), r.Host("ms0").Addr(), cfg, nil); err != nil {
			t.Error(err)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	return res.BW.Average
}

// The key window decides how much of a long link a queue pair uses: with 128 packets in a round trip
// of 4 ms it is a quarter, with more packets than the link holds it is all.
func TestWindowFillsALongLink(t *testing.T) {
	narrow, wide := bandwidth(t, ""), bandwidth(t, ", window: 1024")
	t.Logf("window 128: %.1f MiB/s, window 1024: %.1f MiB/s", narrow, wide)
	if same := bandwidth(t, ", window: 128"); same != narrow {
		t.Errorf("window 128 gives %.2f MiB/s, the default %.2f", same, narrow)
	}
	if narrow > 40 || wide < 100 {
		t.Errorf("window 128: %.1f MiB/s, want at most 40; window 1024: %.1f MiB/s, want at least 100", narrow, wide)
	}
}

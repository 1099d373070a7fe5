package raw

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// pair is a client and a server on a cable that loses the frames for which lose returns true (from
// 0 is the client).
func pair(t *testing.T, cfg perf.Config, lose func(from, index int) bool) *run {
	t.Helper()
	a, b := memcable.Pair(memcable.Config{Filter: func(from, index int, _ packetio.Frame) int {
		if lose != nil && lose(from, index) {
			return 0
		}
		return 1
	}})
	const session = 0x1234567890abcdef
	client := &end{port: a, waiter: memcable.NewWaiter(a), self: wire.MAC{2, 0, 0, 0, 0, 1}, session: session}
	server := &end{port: b, waiter: memcable.NewWaiter(b), self: wire.MAC{2, 0, 0, 0, 0, 2}, session: session}
	served := make(chan error, 1)
	go func() { served <- server.serve() }()
	t.Cleanup(func() {
		if err := errors.Join(client.close(), server.close()); err != nil {
			t.Error(err)
		}
		if err := <-served; err == nil {
			t.Error("the server ended without an error")
		}
	})
	// On a busy machine the server may be silent for a while, though no frame was lost.
	return &run{end: client, ctx: t.Context(), cfg: &cfg, dst: server.self, tell: func(perf.Progress) {}, stall: time.Second}
}

func TestBandwidth(t *testing.T) {
	for name, c := range map[string]struct {
		size, iters, depth int
		lose               func(from, index int) bool
		lost               uint64
	}{
		"small":           {8, 5000, 128, nil, 0},
		"several frames":  {10000, 500, 128, nil, 0},
		"depth 1":         {8, 200, 1, nil, 0},
		"three data lost": {8, 3000, 64, func(from, i int) bool { return from == 0 && i >= 100 && i < 103 }, 3},
		"an answer lost":  {8, 3000, 64, func(from, i int) bool { return from == 1 && i == 5 }, 0},
		"the last lost":   {8, 100, 64, func(from, i int) bool { return from == 0 && i == 99 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := pair(t, perf.Config{Test: perf.RawBW, Size: c.size, Iters: c.iters, Depth: c.depth}, c.lose)
			res := perf.Result{MTU: maxPayload}
			if err := r.bandwidth(&res); err != nil {
				t.Fatal(err)
			}
			if res.BW == nil || res.BW.MsgRate <= 0 || res.Counters["raw_frames_lost"] != c.lost {
				t.Errorf("%+v, lost %v, want %d", res.BW, res.Counters, c.lost)
			}
		})
	}
}

func TestLatency(t *testing.T) {
	r := pair(t, perf.Config{Test: perf.RawLat, Size: 8, Iters: 200, Depth: 1}, func(from, i int) bool { return from == 0 && i == 7 })
	res := perf.Result{MTU: maxPayload}
	if err := r.latency(&res); err != nil {
		t.Fatal(err)
	}
	if l := res.Lat; l == nil || l.Min <= 0 || l.Typical < l.Min || l.P99 < l.Typical || l.Max < l.P999 || res.Counters["raw_frames_lost"] != 1 {
		t.Errorf("%+v, %v", res.Lat, res.Counters)
	}
}

// A raw test ends when its link is dead, and when its client has ended.
func TestGivesUp(t *testing.T) {
	for _, test := range []string{perf.RawBW, perf.RawLat} {
		r := pair(t, perf.Config{Test: test, Size: 8, Iters: 100, Depth: 16}, func(int, int) bool { return true })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		r.ctx = ctx
		run := r.bandwidth
		if test == perf.RawLat {
			run = r.latency
		}
		res := perf.Result{MTU: maxPayload}
		if err := run(&res); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", test, err)
		}
		cancel()
	}
}

// A test whose link dies in the middle returns what it has measured, together with the error.
func TestMeasurementsBeforeAnError(t *testing.T) {
	for _, test := range []string{perf.RawBW, perf.RawLat} {
		r := pair(t, perf.Config{Test: test, Size: 8, Iters: 1 << 20, Depth: 16}, func(from, i int) bool { return from == 0 && i > 200 })
		r.stall = 50 * time.Millisecond
		run := r.bandwidth
		if test == perf.RawLat {
			run = r.latency
		}
		res := perf.Result{MTU: maxPayload}
		err := run(&res)
		if err == nil || res.Elapsed == 0 {
			t.Errorf("%s: %v after %v", test, err, res.Elapsed)
		}
		switch {
		case test == perf.RawBW && (res.BW == nil || res.BW.MsgRate <= 0 || res.BW.Iters < 100 || res.BW.Iters > 300):
			t.Errorf("bandwidth: %+v", res.BW)
		case test == perf.RawLat && (res.Lat == nil || res.Lat.Average <= 0 || res.Lat.Iters < 200 || res.Lat.Iters > 300):
			t.Errorf("latency: %+v", res.Lat)
		}
	}
}

func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.18.3:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().(*net.TCPAddr).AddrPort().Addr()
	if _, err := (&Host{Inside: func(open func() error) error { return open() }}).dial(t.Context(), addr, 1); err == nil {
		t.Error("dialled a server that is not there")
	}
}

func FuzzFrame(f *testing.F) {
	b := make([]byte, 60)
	putFrame(b, wire.MAC{1}, wire.MAC{2}, opEcho, 7, 9)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		op, number, ok := parseFrame(b, 7)
		if !ok {
			return
		}
		c := make([]byte, len(b))
		copy(c, b)
		putFrame(c, wire.MAC(b[:6]), wire.MAC(b[6:12]), op, 7, number)
		if o, n, ok := parseFrame(c, 7); !ok || o != op || n != number {
			t.Errorf("%d %d became %d %d %v", op, number, o, n, ok)
		}
	})
}

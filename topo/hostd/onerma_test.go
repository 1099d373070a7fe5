package hostd

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// soloRack is testRack with 1RMA NICs.
func soloRack() *rackfile.Rack {
	r := testRack()
	r.Faults = nil
	r.OneRMA = &rackfile.OneRMA{RTT: 200 * time.Microsecond, Dispatch: 20 * time.Millisecond, Timeout: 50 * time.Millisecond, Window: 64 << 10}
	return r
}

func counter(t *testing.T, c *control.Client, name string) uint64 {
	t.Helper()
	var out Counters
	if err := c.Call(t.Context(), "GET", PathCounters, nil, &out); err != nil {
		t.Fatal(err)
	}
	for _, s := range out.Samples {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

// All tests over the 1RMA NICs run and compare their bytes; status and counters show the NICs.
func TestOneRMA(t *testing.T) {
	_, cn, ms := upAs(t, soloRack())
	for _, test := range perf.OneRMATests() {
		for _, size := range []int{1, 5000} {
			res, err := runPerf(t.Context(), cn, perf.Config{Test: test, To: "ms0", Size: size, Iters: 70, Depth: 32, Verify: true})
			if err != nil {
				t.Fatalf("%s: %v", test, err)
			}
			want := uint64(70 * size) // the last of the WRITEs to each place are read back
			if test == perf.OneRMAWriteBW {
				want = uint64(32 * size)
			}
			if res.Verified != want || res.From != "cn0" || res.Counters["onerma_ended_ok"] == 0 || (res.BW == nil) == strings.HasSuffix(test, "_bw") {
				t.Errorf("%s of %d bytes: %+v", test, size, res)
			}
			var text strings.Builder
			if err := res.WriteText(&text); err != nil || !strings.Contains(text.String(), "1RMA "+strings.ToUpper(strings.Split(test, "_")[1])) {
				t.Errorf("%v: %s", err, text.String())
			}
		}
	}
	// In a latency test every message has a completion, whatever --cq-mod says.
	if res, err := runPerf(t.Context(), cn, perf.Config{Test: perf.OneRMAReadLat, To: "ms0", Iters: 3, SignalEvery: 4}); err != nil || res.Config.SignalEvery != 1 {
		t.Errorf("CQ moderation %d: %v, want 1", res.Config.SignalEvery, err)
	}
	st := status(t, ms)
	if o := st.OneRMA; o == nil || !o.Up || o.Incarnation != 1 || o.Processes != 1 || o.Window != 64<<10 || !slices.Contains(st.Services, "onerma") {
		t.Errorf("%+v, services %v", st.OneRMA, st.Services)
	}
	if n := counter(t, ms, "onerma_served"); n < 70 {
		t.Errorf("%d operations served", n)
	}
	for cfg, want := range map[*perf.Config]string{
		{Test: perf.OneRMAReadBW, Size: perf.MaxSize + 1}:   "size 67108865",
		{Test: perf.OneRMAReadBW, Size: 64 << 20, Depth: 5}: "give a smaller --size or --tx-depth",
		{Test: perf.OneRMAReadBW, Iters: -1}:                "iters -1",
		{Test: perf.OneRMAWriteLat, To: "cn0", Size: 8}:     loopback(1).String(),
	} {
		if cfg.To == "" {
			cfg.To = "ms0"
		}
		if _, err := runPerf(t.Context(), cn, *cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

// The 1RMA NIC ends with the NIC, and comes back as another incarnation. Without its application a
// host lends nothing.
func TestOneRMAEndsWithTheNIC(t *testing.T) {
	_, cn, ms := upAs(t, soloRack())
	post := func(path string, in any) {
		t.Helper()
		if err := ms.Call(t.Context(), http.MethodPost, path, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	works := func() bool {
		_, err := runPerf(t.Context(), cn, perf.Config{Test: perf.OneRMAReadLat, To: "ms0", Iters: 3})
		return err == nil
	}
	post(PathNIC, NICRequest{State: StateDown})
	if o := status(t, ms).OneRMA; o.Up || o.Processes != 0 || works() {
		t.Errorf("after the NIC's crash: %+v", o)
	}
	post(PathNIC, NICRequest{State: StateUp})
	if o := status(t, ms).OneRMA; !o.Up || o.Incarnation != 2 || !works() {
		t.Errorf("after the NIC's start: %+v", o)
	}
	post(PathCrashApp, nil)
	if o := status(t, ms).OneRMA; !o.Up || o.Processes != 0 || works() {
		t.Errorf("after the application's crash: %+v", o)
	}
	post(PathStartApp, nil)
	if o := status(t, ms).OneRMA; !o.Up || o.Incarnation != 2 || !works() {
		t.Errorf("after the application's start: %+v", o)
	}
}

// A rack without 1RMA NICs says how to get them.
func TestNoOneRMA(t *testing.T) {
	_, cn, _ := up(t)
	if _, err := runPerf(t.Context(), cn, perf.Config{Test: perf.OneRMAReadBW, To: "ms0"}); err == nil || !strings.Contains(err.Error(), "put `onerma: {}` into the rack file") {
		t.Error(err)
	}
	if o := status(t, cn).OneRMA; o != nil {
		t.Errorf("%+v", o)
	}
}

// A NIC whose start fails stays down, and services that cannot be started again with it have crashed. Both
// can be started when what was wrong is gone.
func TestOneRMAStartFails(t *testing.T) {
	r := soloRack()
	dir := describe(t, r)
	a, b := memcable.Pair(memcable.Config{})
	start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	paths := rackfile.Paths{Dir: dir}
	cn, ms := control.NewClient(paths.Socket("cn0")), control.NewClient(paths.Socket("ms0"))
	post := func(path string, in any) error { return ms.Call(t.Context(), http.MethodPost, path, in, nil) }
	down := func() {
		t.Helper()
		if err := post(PathNIC, NICRequest{State: StateDown}); err != nil {
			t.Fatal(err)
		}
	}
	works := func() {
		t.Helper()
		if _, err := runPerf(t.Context(), cn, perf.Config{Test: perf.OneRMAReadLat, To: "ms0", Iters: 3}); err != nil {
			t.Error(err)
		}
	}
	down()
	file := paths.Incarnation("ms0")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := post(PathNIC, NICRequest{State: StateUp}); err == nil || status(t, ms).NIC.State != StateDown {
		t.Errorf("with a damaged file: %v, NIC %s", err, status(t, ms).NIC.State)
	}
	if err := os.WriteFile(file, []byte("7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := post(PathNIC, NICRequest{State: StateUp}); err != nil {
		t.Error(err)
	}
	works()
	down()
	l, err := net.Listen("tcp4", netip.AddrPortFrom(r.Hosts[1].IPv4, onermahost.LenderPort).String())
	if err != nil {
		t.Fatal(err)
	}
	if err := post(PathNIC, NICRequest{State: StateUp}); err == nil || status(t, ms).App != StateCrashed {
		t.Errorf("with the port in use: %v, application %s", err, status(t, ms).App)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := post(PathStartApp, nil); err != nil {
		t.Error(err)
	}
	works()
}

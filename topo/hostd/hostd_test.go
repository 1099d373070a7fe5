package hostd

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is a port in memory, which replaces an interface.
type end struct {
	*memcable.Port
	mac wire.MAC
}

func (c *end) Info() afpacket.Info {
	return afpacket.Info{Ifname: "mem", MTU: 4200, MAC: c.mac.String()}
}
func (c *end) LinkUp() bool { return true }

// loopback returns the loopback address of host i. Processes that run these tests at the same time
// have different addresses.
func loopback(i byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 64 | byte(os.Getpid()>>8&0x3f), byte(os.Getpid()), i})
}

// testRack describes a compute node and a memory server on loopback addresses, whose NICs are
// joined in memory.
func testRack() *rackfile.Rack {
	host := func(i byte, name string, role rackfile.Role, memory int64) rackfile.Host {
		return rackfile.Host{
			Name: name, Role: role, Memory: memory, MAC: wire.MAC{2, 0, 0, 0, 0, i},
			IPv4: loopback(i), Spin: 20 * time.Microsecond,
		}
	}
	return &rackfile.Rack{
		Name: "unit", Seed: 7, LinkMTU: 4200,
		Hosts:  []rackfile.Host{host(1, "cn0", rackfile.Compute, 0), host(2, "ms0", rackfile.Memory, 1<<20)},
		Faults: []fault.Rule{{ID: "t1", Link: "ms0", Kind: fault.Tear, Probability: 0.5}},
	}
}

// up starts the hosts of testRack and returns clients for them.
func up(t *testing.T) (dir string, cn, ms *control.Client) {
	t.Helper()
	return upAs(t, testRack())
}

// upAs is up for the rack r, which has the hosts of testRack.
func upAs(t *testing.T, r *rackfile.Rack) (dir string, cn, ms *control.Client) {
	t.Helper()
	dir = describe(t, r)
	a, b := memcable.Pair(memcable.Config{})
	start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	paths := rackfile.Paths{Dir: dir}
	return dir, control.NewClient(paths.Socket("cn0")), control.NewClient(paths.Socket("ms0"))
}

// describe makes the state folder of a rack.
func describe(t *testing.T, r *rackfile.Rack) (dir string) {
	t.Helper()
	dir = t.TempDir()
	paths := rackfile.Paths{Dir: dir}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(paths.Spec(), data, 0o600), os.Mkdir(filepath.Dir(paths.Socket("x")), 0o700)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts a host on a port in memory until the test is over.
func start(t *testing.T, dir string, self *rackfile.Host, mem *memcable.Port) *Host {
	t.Helper()
	h, err := Open(Config{
		Dir: dir, Name: self.Name, Log: slog.New(slog.DiscardHandler), listen: self.IPv4,
		open: func(*rackfile.Host) (port, packetio.Waiter, error) {
			return &end{mem, self.MAC}, memcable.NewWaiter(mem), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := h.Close(); err != nil {
				t.Errorf("close %s: %v", self.Name, err)
			}
		}
	})
	return h
}

func status(t *testing.T, c *control.Client) (s Status) {
	t.Helper()
	if err := c.Call(t.Context(), "GET", PathStatus, nil, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// runPerf runs a test and returns its result and error.
func runPerf(ctx context.Context, c *control.Client, cfg perf.Config) (res perf.Result, err error) {
	err = control.Items(ctx, c, "POST", PathPerf, cfg, func(ev perf.Event) error {
		if ev.Result != nil {
			res = *ev.Result
		}
		return nil
	})
	return res, err
}

// verify checks the path to the memory server once, and returns the result.
func verify(t *testing.T, c *control.Client) VerifyItem {
	t.Helper()
	var items []VerifyItem
	err := control.Items(t.Context(), c, "POST", PathVerify, nil, func(i VerifyItem) error { items = append(items, i); return nil })
	if err != nil || len(items) != 1 {
		t.Fatalf("verify: %+v, %v", items, err)
	}
	return items[0]
}

func TestStatusAndTests(t *testing.T) {
	_, cn, ms := up(t)
	st := status(t, ms)
	if st.Name != "ms0" || st.Role != rackfile.Memory || st.NIC.State != StateUp || st.App != StateRunning ||
		!slices.Equal(st.Services, []string{"memory", "perf"}) || len(st.Regions) != 2 || st.Regions[0].Length != 1<<20 {
		t.Errorf("status of ms0: %+v", st)
	}
	if st.Tear == nil || st.Tear.Probability != 0.5 || st.Tear.Seed != 7 {
		t.Errorf("the rack file's torn copies: %+v", st.Tear)
	}
	if v := verify(t, cn); !v.OK || v.From != "cn0" || v.To != "ms0" || len(v.Result.Checks) != 4 {
		t.Errorf("verify: %+v", v)
	}
	res, err := runPerf(t.Context(), cn, perf.Config{Test: perf.SendBW, To: "ms0", Size: 10000, Iters: 300, Verify: true})
	if err != nil || res.BW == nil || res.From != "cn0" || res.Counters["sent_pkts"] == 0 {
		t.Errorf("send_bw: %+v, %v", res, err)
	}
	if _, err := runPerf(t.Context(), cn, perf.Config{Test: perf.Verify, To: "ms99"}); err == nil || !strings.Contains(err.Error(), "cn0 ms0") {
		t.Errorf("unknown host: %v", err)
	}
	if _, err := runPerf(t.Context(), cn, perf.Config{Test: "no_test", To: "ms0"}); err == nil {
		t.Error("an unknown test ran")
	}
	var c Counters
	if err := cn.Call(t.Context(), "GET", PathCounters, nil, &c); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]uint64)
	for _, s := range c.Samples {
		values[s.Name] = s.Value
	}
	if values["sent_pkts"] == 0 || values["sent_pkts"] != values["port_tx_packets"] {
		t.Errorf("counters: %v", values)
	}
}

// A crash of the application ends its jobs and connections. The NIC, the region and its keys stay,
// and peers that are connected to the memory still get answers.
func TestCrashApp(t *testing.T) {
	_, cn, ms := up(t)
	before := status(t, ms)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	job := func(test string) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := runPerf(ctx, cn, perf.Config{Test: test, To: "ms0", Iters: 10_000_000, Path: perf.Path{Timeout: 13}})
			ended <- err
		}()
		return ended
	}
	sends, writes := job(perf.SendBW), job(perf.WriteBW)
	eventually(t, "the jobs run", func() bool { return len(status(t, cn).Jobs) == 2 })
	first := map[uint32]uint32{}
	eventually(t, "both connections are used", func() bool {
		used := 0
		for _, q := range status(t, ms).QPs {
			if psn, ok := first[q.QPN]; !ok {
				first[q.QPN] = q.RecvPSN
			} else if psn != q.RecvPSN {
				used++
			}
		}
		return used == 2
	})
	if err := ms.Call(t.Context(), "POST", PathCrashApp, nil, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-sends:
		if err == nil || !strings.Contains(err.Error(), "the peer has ended the connection") {
			t.Errorf("the peer's job: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the peer's job goes on without a receiver")
	}
	st := status(t, ms)
	if st.App != StateCrashed || len(st.QPs) != 1 || st.NIC.State != StateUp || !slices.Equal(st.Regions, before.Regions) {
		t.Errorf("after the crash: %+v", st)
	}
	received := st.NIC.RcvdPkts
	eventually(t, "the memory is written on", func() bool { return status(t, ms).NIC.RcvdPkts > received+1000 })
	select {
	case err := <-writes:
		t.Errorf("the job that needs the NIC only has ended: %v", err)
	default:
	}
	if v := verify(t, cn); v.OK {
		t.Error("a crashed application took a connection")
	}
	if v, err := runPerf(t.Context(), ms, perf.Config{Test: perf.Verify, To: "cn0", Service: perf.PerfService}); err == nil {
		t.Errorf("a crashed application ran a test: %+v", v)
	}
	if err := ms.Call(t.Context(), "POST", PathStartApp, nil, nil); err != nil {
		t.Fatal(err)
	}
	if st := status(t, ms); st.App != StateRunning || !slices.Equal(st.Regions, before.Regions) {
		t.Errorf("after the start: %+v", st)
	}
	if v := verify(t, cn); !v.OK {
		t.Errorf("after the start: %+v", v)
	}
	cancel()
	<-writes
	eventually(t, "the client's farewell is heard", func() bool { return len(status(t, ms).QPs) == 0 })
}

// The client of a killed job gets an error that says so.
func TestCrashAppOfTheClient(t *testing.T) {
	_, cn, _ := up(t)
	job := make(chan error, 1)
	go func() {
		_, err := runPerf(context.Background(), cn, perf.Config{Test: perf.WriteBW, To: "ms0", Iters: 10_000_000})
		job <- err
	}()
	eventually(t, "the job runs", func() bool { return len(status(t, cn).QPs) == 1 })
	if err := cn.Call(t.Context(), "POST", PathCrashApp, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-job; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("killed job: %v", err)
	}
	if st := status(t, cn); len(st.Jobs) != 0 || st.Objects.QPs != 0 {
		t.Errorf("after the crash: %+v", st)
	}
}

// A crash of the NIC loses connections and keys; the bytes of the region stay.
func TestCrashNIC(t *testing.T) {
	_, cn, ms := up(t)
	before := status(t, ms)
	for range 2 { // a second request for the same state is no error
		if err := ms.Call(t.Context(), "POST", PathNIC, NICRequest{StateDown}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if st := status(t, ms); st.NIC.State != StateDown || len(st.Regions) != 0 || st.Objects.MRs != 0 {
		t.Errorf("while down: %+v", st)
	}
	if v := verify(t, cn); v.OK {
		t.Error("a NIC that is down took a connection")
	}
	if err := ms.Call(t.Context(), "POST", PathNIC, NICRequest{StateUp}, nil); err != nil {
		t.Fatal(err)
	}
	st := status(t, ms)
	if st.NIC.State != StateUp || len(st.Regions) != 2 || st.Regions[0].RKey == before.Regions[0].RKey || st.Tear == nil {
		t.Errorf("up again: %+v, before %+v", st, before.Regions)
	}
	if v := verify(t, cn); !v.OK {
		t.Errorf("up again: %+v", v)
	}
	if err := ms.Call(t.Context(), "POST", PathNIC, NICRequest{"sideways"}, nil); !isStatus(err, http.StatusBadRequest) {
		t.Errorf("unknown state: %v", err)
	}
}

// Random bytes and RoCEv2 packets with some bytes changed are counted and have no other effect.
func TestGarbage(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	a, b := memcable.Pair(memcable.Config{Depth: 4096})
	self := &r.Hosts[1]
	start(t, dir, self, a)
	good := wire.Frame{
		Eth:  wire.Ethernet{Dst: self.MAC, Src: r.Hosts[0].MAC, Type: wire.EtherTypeIPv4},
		IPv4: wire.IPv4{DF: true, TTL: 64, Protocol: 17, Src: r.Hosts[0].IPv4.As4(), Dst: self.IPv4.As4()},
		UDP:  wire.UDP{SrcPort: 50000, DstPort: wire.UDPPort},
	}
	good.BTH.DestQP, good.BTH.PKey = 77, 0xffff
	rng := rand.New(rand.NewPCG(1, 2))
	ms := control.NewClient(rackfile.Paths{Dir: dir}.Socket("ms0"))
	counted := func() (arrived, dropped uint64) {
		var c Counters
		if err := ms.Call(t.Context(), "GET", PathCounters, nil, &c); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Samples {
			switch s.Name {
			case "rx_icrc_encapsulated", "rx_malformed", "rx_unknown_qp", "rx_not_mine", "rx_unsupported", "rx_pkey_mismatch", "rx_wrong_peer":
				dropped += s.Value
			case "port_rx_packets":
				arrived = s.Value
			}
		}
		return arrived, dropped
	}
	const frames, atOnce = 20_000, 2000 // at once: what the queue holds
	var batch packetio.Batch
	sent := 0 // of n: the end of a link takes no more than its queue holds
	for n := 0; n < frames; {
		batch.Reset()
		for range atOnce {
			f := good.AppendTo(nil)
			if n++; n%2 == 0 {
				f = make([]byte, rng.IntN(200))
				copy(f, good.AppendTo(nil)[:min(len(f), rng.IntN(60))])
			}
			for range rng.IntN(4) {
				if len(f) > 0 {
					f[rng.IntN(len(f))] = byte(rng.Uint32())
				}
			}
			batch.Add(0, f)
		}
		k, err := b.Send(&batch)
		if err != nil {
			t.Fatal(err)
		}
		sent += k
		eventually(t, "everything has arrived and what is RoCEv2 was counted", func() bool {
			arrived, dropped := counted()
			return arrived == uint64(sent) && dropped > arrived/3
		})
	}
	if sent < frames/2 {
		t.Errorf("%d of %d frames were sent", sent, frames)
	}
	if st := status(t, ms); st.NIC.State != StateUp || st.Objects.QPs != 0 {
		t.Errorf("after the flood: %+v", st)
	}
}

func TestTear(t *testing.T) {
	_, _, ms := up(t)
	set := func(tear Tear) error { return ms.Call(t.Context(), "POST", PathTear, tear, nil) }
	for _, bad := range []Tear{{Probability: -0.1}, {Probability: 1.5}, {Probability: 0.1, Pause: -1}} {
		if err := set(bad); !isStatus(err, http.StatusBadRequest) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := set(Tear{Probability: 0.25, Seed: 3, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if st := status(t, ms); st.Tear == nil || st.Tear.Probability != 0.25 || st.Tear.Seed != 3 {
		t.Errorf("tear: %+v", st.Tear)
	}
	if err := set(Tear{Probability: 0.25, For: 30 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ends by itself", func() bool { return status(t, ms).Tear == nil })
	if err := set(Tear{Probability: 1}); err != nil {
		t.Fatal(err)
	}
	if err := ms.Call(t.Context(), "DELETE", PathTear, nil, nil); err != nil {
		t.Fatal(err)
	}
	if st := status(t, ms); st.Tear != nil {
		t.Errorf("tear after its end: %+v", st.Tear)
	}
}

// When a client disconnects, its test ends.
func TestClientGoes(t *testing.T) {
	_, cn, _ := up(t)
	ctx, cancel := context.WithCancel(t.Context())
	job := make(chan error, 1)
	go func() {
		_, err := runPerf(ctx, cn, perf.Config{Test: perf.ReadBW, To: "ms0", Iters: 10_000_000})
		job <- err
	}()
	eventually(t, "the job runs", func() bool { return len(status(t, cn).QPs) == 1 })
	cancel()
	if err := <-job; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled test: %v", err)
	}
	eventually(t, "the job ends", func() bool { st := status(t, cn); return len(st.Jobs) == 0 && st.Objects.QPs == 0 })
}

// Connections can be made by TCP instead of the connection manager.
func TestConnectionsByTCP(t *testing.T) {
	r := testRack()
	r.Connect = rackfile.ConnectTCP
	_, cn, _ := upAs(t, r)
	if v := verify(t, cn); !v.OK {
		t.Errorf("verify: %+v", v)
	}
	if _, err := runPerf(t.Context(), cn, perf.Config{Test: perf.SendBW, To: "ms0", Iters: 100}); err != nil {
		t.Error(err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	r := testRack()
	r.Connect = rackfile.ConnectTCP
	dir, _, _ := upAs(t, r)
	log := slog.New(slog.DiscardHandler)
	for what, cfg := range map[string]Config{
		"rack description":     {Dir: t.TempDir(), Name: "cn0", Log: log},
		"no host of this name": {Dir: dir, Name: "cn9", Log: log},
		"interface":            {Dir: dir, Name: "cn0", Log: log, Ifname: "nosuch0"},
		"address already in use": {
			Dir: dir, Name: "cn0", Log: log, listen: loopback(1),
			open: func(*rackfile.Host) (port, packetio.Waiter, error) {
				a, _ := memcable.Pair(memcable.Config{})
				return &end{a, wire.MAC{2}}, memcable.NewWaiter(a), nil
			},
		},
	} {
		h, err := Open(cfg)
		if err == nil {
			_ = h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), what) && !errors.Is(err, afpacket.ErrPrivilege) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}

func isStatus(err error, status int) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Status == status
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

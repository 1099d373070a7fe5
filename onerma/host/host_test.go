package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const remote = verbs.LocalWrite | verbs.RemoteRead | verbs.RemoteWrite

// rack is two hosts with a RoCE NIC and a 1RMA NIC each, joined in memory.
type rack struct {
	nics [2]*host.NIC
	devs [2]*device.Device
	lose atomic.Int64 // every so many frames one is lost; 0: none
	dir  string
}

var macs = [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

// addr returns the loopback address of host i. Processes that run these tests at the same time have
// different addresses.
func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 64 | byte(os.Getpid()>>8&0x3f), byte(os.Getpid()), byte(31 + i)})
}

func up(t testing.TB, change ...func(*host.Config)) *rack {
	t.Helper()
	r := &rack{dir: t.TempDir()}
	var count atomic.Int64
	a, b := memcable.Pair(memcable.Config{Depth: 4096, Filter: func(int, int, packetio.Frame) int {
		if n := r.lose.Load(); n > 0 && count.Add(1)%n == 0 {
			return 0
		}
		return 1
	}})
	for i, port := range []*memcable.Port{a, b} {
		resolve := func(x netip.Addr) (wire.MAC, bool) { return macs[1-i], x == addr(1-i) }
		var err error
		cfg := host.Config{
			NIC: nic.Config{
				MAC: macs[i], Addr: addr(i), Resolve: resolve, RTT: 100 * time.Microsecond, DispatchTimeout: 20 * time.Millisecond, Timeout: 50 * time.Millisecond,
			},
			Executor: executor.Config{RTT: 100 * time.Microsecond}, EpochFile: filepath.Join(r.dir, string(rune('a'+i))),
		}
		for _, c := range change {
			c(&cfg)
		}
		r.nics[i], err = host.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.devs[i], err = device.Open(device.Config{
			Port: port, Waiter: memcable.NewWaiter(port), Spin: 20 * time.Microsecond, Second: r.nics[i],
			Engine: engine.Config{Name: "nic", MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(addr(i))}, Rand: rand.New(rand.NewPCG(1, uint64(i))), Resolve: resolve},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.nics[i].Attach(r.devs[i].SecondDriver())
		if err := r.nics[i].Up(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.devs[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return r
}

// process opens a process of host i.
func (r *rack) process(t testing.TB, i int) *host.Process {
	t.Helper()
	p, err := r.nics[i].Open(host.ProcessConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// region registers memory of a process.
func region(t testing.TB, p *host.Process, n int, access verbs.Access) (*host.Region, []byte) {
	t.Helper()
	buf := make([]byte, n)
	r, err := p.Register(buf, access)
	if err != nil {
		t.Fatal(err)
	}
	return r, buf
}

// granted gives a process a region of the other host.
func granted(t testing.TB, r *host.Region, of int, to *host.Process) *host.Remote {
	t.Helper()
	g, err := r.Grant(to.Addr(), to.PID())
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Remote(addr(of))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fill(b []byte, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Bytes of any number move in both directions, with and without loss.
func TestTransfers(t *testing.T) {
	for name, lose := range map[string]int64{"no loss": 0, "loss": 7} {
		t.Run(name, func(t *testing.T) {
			r := up(t)
			server, client := r.process(t, 1), r.process(t, 0)
			shared, target := region(t, server, 1<<18, remote)
			local, buf := region(t, client, 1<<18, verbs.LocalWrite)
			m := granted(t, shared, 1, client)
			r.lose.Store(lose)
			for k, n := range []int{1, 63, 4096, 4097, 100_001, 1 << 18} {
				off := uint64(1<<18 - n)
				fill(buf[off:], uint64(k))
				want := bytes.Clone(buf[off:])
				tr := host.Transfer{Remote: m, Offset: off, Length: n, Local: local, LocalOffset: off}
				if res, err := client.Write(t.Context(), tr); err != nil || res.Moved != n {
					t.Fatalf("WRITE of %d bytes: %+v, %v", n, res, err)
				}
				if !bytes.Equal(target[off:], want) {
					t.Fatalf("WRITE of %d bytes: other bytes have arrived", n)
				}
				clear(buf)
				if _, err := client.Read(t.Context(), tr); err != nil {
					t.Fatalf("READ of %d bytes: %v", n, err)
				}
				if !bytes.Equal(buf[off:], want) || !bytes.Equal(buf[:off], make([]byte, off)) {
					t.Fatalf("READ of %d bytes: other bytes have arrived", n)
				}
			}
			if s := r.nics[0].Stats(); (s.Ended[nic.Timeout] > 0) != (lose > 0) {
				t.Errorf("operations by status: %v", s.Ended)
			}
		})
	}
}

// Many goroutines share a process.
func TestGoroutinesShareAProcess(t *testing.T) {
	r := up(t)
	server, client := r.process(t, 1), r.process(t, 0)
	shared, _ := region(t, server, 16<<13, remote)
	local, buf := region(t, client, 16<<13, verbs.LocalWrite)
	m := granted(t, shared, 1, client)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			mine := buf[i<<13:][:1<<13]
			for k := range 20 {
				want := bytes.Clone(fill(mine, uint64(100*i+k)))
				tr := host.Transfer{Remote: m, Offset: uint64(i << 13), Length: 1 << 13, Local: local, LocalOffset: uint64(i << 13), Class: uint8(i % 2)}
				_, werr := client.Write(t.Context(), tr)
				clear(mine)
				_, rerr := client.Read(t.Context(), tr)
				if err := errors.Join(werr, rerr); err != nil || !bytes.Equal(mine, want) {
					t.Errorf("goroutine %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A deadline and a cancelled context end a transfer to a host that does not answer.
func TestATransferEnds(t *testing.T) {
	r := up(t)
	server, client := r.process(t, 1), r.process(t, 0)
	shared, _ := region(t, server, 4096, remote)
	local, buf := region(t, client, 4096, verbs.LocalWrite)
	m := granted(t, shared, 1, client)
	tr := host.Transfer{Remote: m, Length: 4096, Local: local}
	r.lose.Store(1)
	for _, ctx := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 30*time.Millisecond)
		},
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := ctx()
		_, err := client.Read(ctx, tr)
		var failed *host.StatusError
		if !errors.As(err, &failed) || failed.Status != nic.Timeout {
			t.Errorf("READ without an answer: %v", err)
		}
		cancel()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Read(ended, tr); !errors.Is(err, context.Canceled) {
		t.Errorf("READ with a context that has ended: %v", err)
	}
	tr.Once = true
	if _, err := client.Write(t.Context(), tr); err == nil || !strings.Contains(err.Error(), "TIMEOUT: 0 of 4096 bytes were moved") {
		t.Errorf("WRITE that is tried once: %v", err)
	}
	r.lose.Store(0)
	fill(buf, 9)
	tr.Once = false
	if _, err := client.Write(t.Context(), tr); err != nil {
		t.Errorf("WRITE after the loss: %v", err)
	}
	if err := local.Deregister(); err != nil {
		t.Errorf("deregister: %v", err)
	}
}

// Memory stays registered while a transfer uses it, also while the transfer waits before it tries
// again.
func TestMemoryOfATransferStaysRegistered(t *testing.T) {
	r := up(t, func(c *host.Config) { c.Executor.RTT = 20 * time.Millisecond }) // tries are 200 ms apart after a TIMEOUT
	server, client := r.process(t, 1), r.process(t, 0)
	shared, _ := region(t, server, 64, remote)
	local, _ := region(t, client, 64, verbs.LocalWrite)
	var c host.Call
	r.lose.Store(1)
	tr := host.Transfer{Op: onerma.Read, Remote: granted(t, shared, 1, client), Length: 64, Local: local}
	if err := client.Start(&c, &tr, r.nics[0].Now().Add(500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for tries := 0; !c.Done(); tries++ {
		if err := local.Deregister(); err == nil || !errors.Is(err, verbs.ErrBusy) {
			if c.Done() {
				break
			}
			t.Fatalf("deregister, try %d: %v", tries, err)
		}
	}
	res, err := c.Wait()
	if err == nil || res.Retries == 0 {
		t.Errorf("READ without an answer: %+v, %v", res, err)
	}
	if err := local.Deregister(); err != nil {
		t.Errorf("deregister: %v", err)
	}
}

// A transfer that cannot be executed is refused with what is wrong.
func TestRefusals(t *testing.T) {
	r := up(t)
	server, client, other := r.process(t, 1), r.process(t, 0), r.process(t, 0)
	shared, _ := region(t, server, 100, remote)
	local, _ := region(t, client, 200, verbs.LocalWrite)
	plain, _ := region(t, client, 200, 0)
	theirs, _ := region(t, other, 200, verbs.LocalWrite)
	m := granted(t, shared, 1, client)
	own := *m
	own.Addr = addr(0)
	good := host.Transfer{Op: onerma.Read, Remote: m, Length: 1, Local: local}
	for want, change := range map[string]func(t *host.Transfer){
		"bytes [100,+1) of remote memory of 100 bytes":                  func(t *host.Transfer) { t.Offset = 100 },
		"bytes [18446744073709551615,+1) of remote memory of 100 bytes": func(t *host.Transfer) { t.Offset = 1<<64 - 1 },
		"bytes [0,+101) of remote memory of 100 bytes":                  func(t *host.Transfer) { t.Length = 101 },
		"bytes [0,+0) of remote":                                        func(t *host.Transfer) { t.Length = 0 },
		"bytes [200,+1) of local memory of 200 bytes":                   func(t *host.Transfer) { t.LocalOffset = 200 },
		"pass remote memory":                                            func(t *host.Transfer) { t.Remote = nil },
		"memory of this process":                                        func(t *host.Transfer) { t.Local = theirs },
		"class 2: use 0 or 1":                                           func(t *host.Transfer) { t.Class = 2 },
		"needs local memory with LocalWrite":                            func(t *host.Transfer) { t.Local = plain },
		"use READ or WRITE":                                             func(t *host.Transfer) { t.Op = onerma.Rekey },
		addr(0).String() + " is this host":                              func(t *host.Transfer) { t.Remote = &own },
	} {
		bad := good
		change(&bad)
		var c host.Call
		if err := client.Start(&c, &bad, clock.Never); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := c.Wait(); err == nil || !c.Done() {
			t.Errorf("Wait for a call that was refused: %v", err)
		}
	}
	if _, err := client.Register(nil, remote); err == nil {
		t.Error("registered no bytes")
	}
	if _, err := client.Read(t.Context(), host.Transfer{Remote: granted(t, shared, 1, other), Length: 1, Local: local}); err == nil || !strings.Contains(err.Error(), "REMOTE_AUTHENTICATION_FAILURE") {
		t.Errorf("READ with the key of another process: %v", err)
	}
}

// A peer with the right replaces the key of a region; keys from before are refused, new ones work.
func TestRekey(t *testing.T) {
	r := up(t)
	server, client := r.process(t, 1), r.process(t, 0)
	shared, target := region(t, server, 64, remote)
	local, buf := region(t, client, 64, verbs.LocalWrite)
	old := granted(t, shared, 1, client)
	fill(target, 1)
	if err := client.Rekey(old, nic.Key{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	tr := host.Transfer{Remote: old, Length: 64, Local: local}
	var failed *host.StatusError
	if _, err := client.Read(t.Context(), tr); !errors.As(err, &failed) || failed.Status != nic.RemoteAuthenticationFailure {
		t.Errorf("READ with an old key: %v", err)
	}
	if err := client.Rekey(old, nic.Key{4}); !errors.As(err, &failed) || failed.Status != nic.RemoteAuthenticationFailure {
		t.Errorf("REKEY with an old key: %v", err)
	}
	tr.Remote = granted(t, shared, 1, client)
	if _, err := client.Read(t.Context(), tr); err != nil || !bytes.Equal(buf, target) {
		t.Errorf("READ with the new key: %v", err)
	}
	if err := shared.SetKey(nic.Key{9}); err != nil {
		t.Error(err)
	}
	if _, err := client.Read(t.Context(), tr); !errors.As(err, &failed) || failed.Status != nic.RemoteAuthenticationFailure {
		t.Errorf("READ after SetKey: %v", err)
	}
}

// A crash ends what waits, and the next incarnation uses neither a PID nor an epoch again.
func TestCrash(t *testing.T) {
	r := up(t)
	server, client := r.process(t, 1), r.process(t, 0)
	shared, _ := region(t, server, 64, remote)
	local, _ := region(t, client, 64, verbs.LocalWrite)
	m := granted(t, shared, 1, client)
	r.lose.Store(1)
	waits := make(chan error, 2)
	go func() {
		_, err := client.Read(t.Context(), host.Transfer{Remote: m, Length: 64, Local: local})
		waits <- err
	}()
	go func() { waits <- client.Rekey(m, nic.Key{1}) }()
	for r.nics[0].Stats().Sent < 2 {
		time.Sleep(time.Millisecond)
	}
	r.nics[0].Crash()
	r.nics[0].Crash()
	var failed *host.StatusError
	for range 2 {
		if err := <-waits; !errors.Is(err, verbs.ErrClosed) && !errors.As(err, &failed) {
			t.Errorf("a wait ended with %v", err)
		}
	}
	r.lose.Store(0)
	if _, err := r.nics[0].Open(host.ProcessConfig{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("open on a NIC that is down: %v", err)
	}
	if s := r.nics[0].Status(); s.Up || s.Incarnation != 1 || s.Processes != 0 {
		t.Errorf("%+v", s)
	}
	sent := r.nics[0].Stats().Sent
	if err := errors.Join(r.nics[0].Up(), r.nics[0].Up()); err != nil {
		t.Fatal(err)
	}
	again := r.process(t, 0)
	if s := r.nics[0].Status(); !s.Up || s.Incarnation != 2 || s.Processes != 1 || again.PID() == client.PID() || r.nics[0].Stats().Sent < sent {
		t.Errorf("%+v, PID %d", s, again.PID())
	}
	if _, err := client.Register(make([]byte, 1), remote); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("register in a process that has ended: %v", err)
	}
	if err := errors.Join(local.Deregister()); err != nil {
		t.Errorf("deregister after a crash: %v", err)
	}
	client.Close()
	again.Close()
	again.Close()
}

// A file that has no number, or no number left, is an error that says what to do.
func TestEpochFile(t *testing.T) {
	r := up(t)
	path := filepath.Join(r.dir, "a")
	for content, want := range map[string]string{"x": "take the rack down", "65535": "take the rack down"} {
		r.nics[0].Crash()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.nics[0].Up(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// A Lender lends memory until the connection ends, and refuses what it cannot lend.
func TestLender(t *testing.T) {
	r := up(t)
	l, err := net.Listen("tcp", net.JoinHostPort(addr(1).String(), "4792"))
	if err != nil {
		t.Fatal(err)
	}
	lender := r.process(t, 1).Lend(l, slog.New(slog.DiscardHandler))
	client := r.process(t, 0)
	loan, err := host.Borrow(t.Context(), client, addr(1), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	local, buf := region(t, client, 1<<16, verbs.LocalWrite)
	want := bytes.Clone(fill(buf, 5))
	tr := host.Transfer{Remote: loan.Remote, Length: 1 << 16, Local: local}
	if _, err := client.Write(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	clear(buf)
	if _, err := client.Read(t.Context(), tr); err != nil || !bytes.Equal(buf, want) {
		t.Fatal(err)
	}
	for n, want := range map[int]string{0: "ask for 1 to", -1: "ask for 1 to", host.MaxLoan + 1: "ask for 1 to"} {
		if _, err := host.Borrow(t.Context(), client, addr(1), n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, line := range []string{"\n", "{}\n", "nonsense\n", strings.Repeat("x", 5000)} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(line)) // the lender may have ended the connection
		answer := make([]byte, 200)
		n, _ := c.Read(answer)
		if n > 0 && !strings.Contains(string(answer[:n]), `"error":`) {
			t.Errorf("%.20q: %s", line, answer[:n])
		}
		_ = c.Close()
	}
	if err := loan.Close(); err != nil {
		t.Fatal(err)
	}
	for r.nics[1].Status().Regions > 0 {
		time.Sleep(time.Millisecond)
	}
	tr.Once = true
	var failed *host.StatusError
	if _, err := client.Read(t.Context(), tr); !errors.As(err, &failed) || failed.Status != nic.RemoteAuthenticationFailure {
		t.Errorf("READ after the end of the loan: %v", err)
	}
	if _, err := host.Borrow(t.Context(), client, addr(1), 1); err != nil {
		t.Error(err)
	}
	if err := lender.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkRead4096(b *testing.B) {
	r := up(b)
	server, client := r.process(b, 1), r.process(b, 0)
	shared, _ := region(b, server, 1<<16, remote)
	local, _ := region(b, client, 1<<16, verbs.LocalWrite)
	m := granted(b, shared, 1, client)
	calls := make([]host.Call, 16)
	tr := host.Transfer{Op: onerma.Read, Remote: m, Length: 4096, Local: local}
	b.SetBytes(4096)
	b.ReportAllocs()
	k := 0
	for b.Loop() {
		c := &calls[k%len(calls)]
		if k++; k > len(calls) {
			if _, err := c.Wait(); err != nil {
				b.Fatal(err)
			}
		}
		if err := client.Start(c, &tr, clock.Never); err != nil {
			b.Fatal(err)
		}
	}
	for i := range min(k, len(calls)) {
		if _, err := calls[i].Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// A transfer from Start to Wait allocates no memory, on either host.
func TestTransfersDoNotAllocate(t *testing.T) {
	r := up(t)
	p, q := r.process(t, 0), r.process(t, 1)
	local, _ := region(t, p, 4096, verbs.LocalWrite)
	there, _ := region(t, q, 4096, remote)
	g, err := there.Grant(p.Addr(), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	mem, err := g.Remote(q.Addr())
	if err != nil {
		t.Fatal(err)
	}
	x := host.Transfer{Op: onerma.Read, Remote: mem, Length: 4096, Local: local}
	var c host.Call
	run := func() {
		if err := p.Start(&c, &x, clock.Never); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5000 { // the link of the test has as many buffers, and makes each when it needs it first
		run()
	}
	if got := testing.AllocsPerRun(2000, run); got != 0 {
		t.Errorf("%v allocations a transfer", got)
	}
}

// Incarnations that are started at the same time have different numbers, and the file stays whole.
func TestStartsAtTheSameTime(t *testing.T) {
	r := up(t)
	var mu sync.Mutex
	pids := map[nic.PID]int{}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 40 {
				if err := r.nics[0].Up(); err != nil {
					t.Error(err)
					return
				}
				if p, err := r.nics[0].Open(host.ProcessConfig{Slots: 1}); err == nil {
					mu.Lock()
					pids[p.PID()]++
					mu.Unlock()
				}
				r.nics[0].Crash()
			}
		})
	}
	wg.Wait()
	for pid, n := range pids {
		if n > 1 {
			t.Errorf("PID %#x was given out %d times", pid, n)
		}
	}
	if len(pids) < 10 {
		t.Errorf("%d processes were opened", len(pids))
	}
}

// The keys of a loan are replaced while transfers go on: the borrower has been told the next keys, and none
// of its transfers fails.
func TestRotationTouchesNoTransfer(t *testing.T) {
	r := up(t)
	l, err := net.Listen("tcp", net.JoinHostPort(addr(1).String(), "4792"))
	if err != nil {
		t.Fatal(err)
	}
	lender := r.process(t, 1).Lend(l, slog.New(slog.DiscardHandler))
	client := r.process(t, 0)
	const size, rotations, most = 1 << 16, 20, 400
	loan, err := host.Borrow(t.Context(), client, addr(1), size)
	if err != nil {
		t.Fatal(err)
	}
	out, sent := region(t, client, size, verbs.LocalWrite)
	in, got := region(t, client, size, verbs.LocalWrite)
	stop, failed := make(chan struct{}), make(chan error, 1)
	var done, retries atomic.Int64
	go func() {
		defer close(failed)
		for seed := uint64(1); ; seed++ {
			select {
			case <-stop:
				return
			default:
			}
			fill(sent, seed)
			w, err := client.Write(t.Context(), host.Transfer{Remote: loan.Remote, Length: size, Local: out})
			var x host.Result
			if err == nil {
				x, err = client.Read(t.Context(), host.Transfer{Remote: loan.Remote, Length: size, Local: in})
			}
			done.Add(1)
			if retries.Add(int64(w.Retries + x.Retries)); err != nil || !bytes.Equal(sent, got) {
				failed <- fmt.Errorf("transfer %d: %w", seed, err)
				return
			}
		}
	}()
	i := 0
	for ; i < rotations || retries.Load() == 0 && i < most && len(failed) == 0; i++ { // most operations know the next key before
		if n := lender.Rotate(); n != 1 {
			t.Errorf("rotation %d replaces %d keys", i, n)
		}
		if i >= rotations && i%4 != 0 {
			continue // keys change faster than operations end
		}
		for before := done.Load(); done.Load() < before+2 && len(failed) == 0; {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	t.Logf("%d rotations, %d operations were tried again", i, retries.Load())
	if retries.Load() == 0 || r.nics[0].Stats().Ended[nic.RemoteAuthenticationFailure] == 0 {
		t.Error("no operation met a new key")
	}
	if err := errors.Join(loan.Close(), lender.Close()); err != nil {
		t.Error(err)
	}
}

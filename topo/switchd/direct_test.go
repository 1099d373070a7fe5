package switchd

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// compact is a switch and two NICs of one process (a compact rack), without a kernel.
type compact struct {
	*Daemon
	dev   [2]*device.Device
	ends  [2]*end
	wakes *atomic.Int64 // of the switch's loop
}

// countedWaiter is a waiter that counts how often it is woken.
type countedWaiter struct {
	packetio.Waiter
	wakes *atomic.Int64
}

func (w countedWaiter) Wake() {
	w.wakes.Add(1)
	w.Waiter.Wake()
}

// end is an application with one connected queue pair.
type end struct {
	ctx verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	mr  verbs.MR
	qp  verbs.QP
}

// alwaysEncoded hides that a port passes on packets that are not encoded.
type alwaysEncoded struct{ packetio.Carrier }

// newCompact starts a compact rack. If open is false, all packets are encoded.
func newCompact(t testing.TB, open bool, program pipeline.Program) *compact {
	t.Helper()
	return newCompactWith(t, open, program, 18)
}

// newCompactWith is newCompact with a timeout code of the queue pairs.
func newCompactWith(t testing.TB, open bool, program pipeline.Program, timeout uint8) *compact {
	t.Helper()
	const mtu = 4200
	fabric, wakes := direct.New(), new(atomic.Int64)
	names := [2]string{"h0", "h1"}
	d, err := New(Config{
		Program: program, Fabric: fabric, Links: []Link{{Host: "h0", Ifname: "p0"}, {Host: "h1", Ifname: "p1"}},
		NewWaiter: func(_ time.Duration, ports []packetio.Port) (packetio.Waiter, error) {
			var list []*memcable.Port
			for _, p := range ports {
				list = append(list, p.(*doubleLink).wire.(*wireEnd).Port)
			}
			return countedWaiter{memcable.NewWaiter(list...), wakes}, nil
		},
		Open: func(i int, l Link) (packetio.Port, error) {
			a, _ := memcable.Pair(memcable.Config{})
			return &doubleLink{wire: &wireEnd{a, true}, memory: fabric.Link(l.Host).Switch(i, mtu)}, nil
		},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	c := &compact{Daemon: d, wakes: wakes}
	t.Cleanup(func() {
		for _, dev := range c.dev {
			must(t, dev.Close())
		}
		cancel()
		must(t, <-done)
	})
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}) }
	for i, name := range names {
		var port packetio.Port = fabric.Link(name).Host(mtu)
		if !open {
			port = alwaysEncoded{port.(packetio.Carrier)}
		}
		c.dev[i], err = device.Open(device.Config{
			Port: port, Waiter: direct.NewWaiter(), Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", MAC: mac(i), GIDs: []verbs.GID{verbs.GIDOf(addr(i))}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return mac(1 - i), a == addr(1-i) },
			},
		})
		must(t, err)
		c.ends[i] = newEnd(t, c.dev[i].Context())
	}
	c.connect(t, timeout)
	return c
}

// connect connects the queue pairs of the two hosts.
func (c *compact) connect(t testing.TB, timeout uint8) {
	t.Helper()
	for i, e := range c.ends {
		peer := c.ends[1-i]
		must(t, e.qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}))
		must(t, e.qp.ToRTR(verbs.ToRTR{
			DestQPN: peer.qp.QPN(), DestGID: peer.ctx.Device().GIDs[0], RecvPSN: 77, PathMTU: verbs.MTU4096, MinRNRTimer: 1, MaxDestRdAtomic: 16,
		}))
		must(t, e.qp.ToRTS(verbs.ToRTS{SendPSN: 77, Timeout: timeout, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16}))
	}
	for i := range c.ends { // the switch learns the addresses
		c.run(t, i, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled})
	}
}

func newEnd(t testing.TB, ctx verbs.Context) *end {
	t.Helper()
	e := &end{ctx: ctx}
	var err error
	e.pd, err = ctx.AllocPD()
	must(t, err)
	e.cq, err = ctx.CreateCQ(1024)
	must(t, err)
	e.mr, err = e.pd.RegMR(nil, 1<<20, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	must(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPInit{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 256, MaxRecvWR: 256})
	must(t, err)
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// work completes a work request of host i: its peer's memory, from remote on, is the other side.
func (c *compact) work(i int, wr verbs.SendWR, local, remote, n int) verbs.SendWR {
	wr.RemoteAddr, wr.RKey = c.ends[1-i].mr.Addr()+uint64(remote), c.ends[1-i].mr.RKey()
	if n > 0 {
		wr.SGL = []verbs.SGE{c.ends[i].mr.SGE(local, n)}
	}
	return wr
}

// run makes a work request of host i, and waits until it has ended.
func (c *compact) run(t testing.TB, i int, wr verbs.SendWR) {
	t.Helper()
	if wr.RKey == 0 && wr.Op != verbs.OpSend {
		wr = c.work(i, wr, 0, 0, 0)
	}
	must(t, c.ends[i].qp.PostSend(wr))
	if wc := c.one(t, i); wc.Status != verbs.Success {
		t.Fatalf("%v: %v", wr.Op, wc.Status)
	}
}

func (c *compact) one(t testing.TB, i int) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		n, err := c.ends[i].cq.Poll(wc[:])
		must(t, err)
		if n == 1 {
			return wc[0]
		}
		must(t, c.ends[i].cq.Wait(clock.Never))
	}
}

// measure makes work requests of host 0, with so many in flight, in lists.
func (c *compact) measure(b *testing.B, wr verbs.SendWR, flight, list int) {
	a := c.ends[0]
	wr.Flags = verbs.Signalled
	wrs := make([]verbs.SendWR, list)
	for i := range wrs {
		wrs[i] = wr
	}
	var wc [256]verbs.WC
	posted, done := 0, 0
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		for ; posted-done+list <= flight; posted += list {
			must(b, a.qp.PostSend(wrs...))
		}
		for target := done + 1; done < target; {
			n, err := a.cq.Poll(wc[:])
			must(b, err)
			if done += n; n == 0 {
				must(b, a.cq.Wait(clock.Never))
			}
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(max(done, 1)), "cpu-ns/msg")
}

// processorTime is what the process has used: on a busy machine it says more than the time.
func processorTime(b *testing.B) time.Duration {
	var r unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkCompact measures two NICs and the switch of a compact rack in one thread, with packets that
// are encoded, with such that are not, and with such at which a program looks.
func BenchmarkCompact(b *testing.B) {
	for _, k := range []struct {
		name         string
		op           verbs.WROpcode
		size         int
		flight, list int
	}{
		{"write8", verbs.OpWrite, 8, 64, 16},
		{"write8single", verbs.OpWrite, 8, 16, 1},
		{"cas", verbs.OpCmpSwap, 8, 16, 16},
		{"readlat", verbs.OpRead, 8, 1, 1},
		{"write64k", verbs.OpWrite, 64 << 10, 8, 1},
		{"read64k", verbs.OpRead, 64 << 10, 128, 16},
	} {
		for _, way := range []struct {
			name   string
			open   bool
			tracks bool
		}{{"encoded", false, false}, {"open", true, false}, {"tracked", true, true}} {
			b.Run(k.name+"/"+way.name, func(b *testing.B) {
				var program pipeline.Program = forward.Program{}
				if way.tracks {
					program = tracker(b)
				}
				c := newCompact(b, way.open, program)
				c.measure(b, c.work(0, verbs.SendWR{Op: k.op}, 0, 0, k.size), k.flight, k.list)
			})
		}
	}
}

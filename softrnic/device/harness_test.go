package device

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ips  = [2]netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")}
	macs = [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
)

const fullAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// openPair starts two devices that are joined by ports in memory.
func openPair(t testing.TB, spin time.Duration, cable memcable.Config, options ...func(*Config)) [2]*Device {
	t.Helper()
	var d [2]*Device
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(cable)
	for i := range d {
		cfg := Config{
			Port: ports[i], Waiter: memcable.NewWaiter(ports[i]), Spin: spin, Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(ips[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				PKeys:   verbstest.PKeys[i],
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return macs[1-i], a == ips[1-i] },
			},
		}
		for _, option := range options {
			option(&cfg)
		}
		var err error
		d[i], err = Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d[i].Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	return d
}

// node is an application with one object of each kind.
type node struct {
	ctx verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	mr  verbs.MR
	qp  verbs.QP
}

func newNode(t testing.TB, ctx verbs.Context) *node {
	t.Helper()
	n := &node{ctx: ctx}
	var err error
	n.pd, err = ctx.AllocPD()
	must(t, err)
	n.cq, err = ctx.CreateCQ(512)
	must(t, err)
	n.mr, err = n.pd.RegMR(nil, 1<<16, fullAccess)
	must(t, err)
	n.qp, err = n.pd.CreateQP(verbs.QPInit{SendCQ: n.cq, RecvCQ: n.cq})
	must(t, err)
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect brings a and b to RTS with a timeout of 4 ms, so that tests of failures are short.
func connect(t testing.TB, a, b *node) {
	t.Helper()
	connectPatiently(t, a, b, 10)
}

// connectPatiently is connect with a timeout code: a crowded machine may keep one of many threads
// waiting for longer than eight times 4 ms.
func connectPatiently(t testing.TB, a, b *node, timeout uint8) {
	t.Helper()
	for _, x := range [][2]*node{{a, b}, {b, a}} {
		must(t, x[0].qp.ToInit(verbs.ToInit{Access: fullAccess &^ verbs.LocalWrite}))
		must(t, x[0].qp.ToRTR(verbs.ToRTR{
			DestQPN: x[1].qp.QPN(), DestGID: x[1].ctx.Device().GIDs[0], RecvPSN: 77, PathMTU: verbs.MTU1024, MinRNRTimer: 1,
		}))
		must(t, x[0].qp.ToRTS(verbs.ToRTS{SendPSN: 77, Timeout: timeout, RetryCount: 7, RNRRetry: 7}))
	}
}

// newPair returns two devices with one connected application each.
func newPair(t testing.TB, spin time.Duration, cable memcable.Config) (d [2]*Device, a, b *node) {
	t.Helper()
	d = openPair(t, spin, cable)
	a, b = newNode(t, d[0].Context()), newNode(t, d[1].Context())
	connect(t, a, b)
	return d, a, b
}

// in returns a deadline that much later than now.
func (n *node) in(d time.Duration) clock.Time { return n.ctx.Runtime().Now().Add(d) }

// one waits for the next completion.
func (n *node) one(t testing.TB) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		if k, err := n.cq.Poll(wc[:]); err != nil {
			t.Fatal(err)
		} else if k == 1 {
			return wc[0]
		}
		must(t, n.cq.Wait(n.in(20*time.Second)))
	}
}

func isClosed(err error) bool { return errors.Is(err, verbs.ErrClosed) }

func listing(e *engine.Engine) { _, _ = e.Listing().QPAttrs(), e.Tables.Objects() }

func objects(d *Device) (o engine.Objects) {
	d.With(func(e *engine.Engine) { o = e.Tables.Objects() })
	return o
}

package rdmacm_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The NICs have addresses of the loopback net, so that the TCP exchange reaches the same hosts.
var (
	ips  = [2]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	macs = [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
)

// host is one end: a device, an application and its connection manager.
type host struct {
	dev *device.Device
	ctx verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	cm  rdmacm.Manager
	oob *rdmacm.OOB // cm, if that is an OOB
}

// kinds are the implementations; the conformance tests run on each.
var kinds = []string{"OOB", "CM"}

// onEach runs a conformance test on each implementation.
func onEach(t *testing.T, f func(t *testing.T, kind string)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { f(t, kind) })
	}
}

// newPair makes a dialing host and a listening one on a cable, with managers of one kind.
func newPair(t testing.TB, kind string, backlog int) (a, b *host) {
	t.Helper()
	if kind == "OOB" {
		return newHosts(t, func(c *rdmacm.OOBConfig) { c.Backlog = backlog })
	}
	a, b = newDevices(t)
	for _, h := range []*host{a, b} {
		m, err := rdmacm.NewCM(rdmacm.CMConfig{Context: h.ctx, Backlog: backlog})
		must(t, err)
		t.Cleanup(func() { must(t, m.Close()) })
		h.cm = m
	}
	return a, b
}

// accepted and dialed are the counters that both kinds have.
func accepted(m rdmacm.Manager) uint64 {
	if o, ok := m.(*rdmacm.OOB); ok {
		return o.Stats().Accepted
	}
	return m.(*rdmacm.CM).Stats().Accepted
}

func dialed(m rdmacm.Manager) uint64 {
	if o, ok := m.(*rdmacm.OOB); ok {
		return o.Stats().Dialed
	}
	return m.(*rdmacm.CM).Stats().Dialed
}

func closeManager(m rdmacm.Manager) error { return m.(interface{ Close() error }).Close() }

// newDevices makes two devices on a cable, without managers.
func newDevices(t testing.TB) (a, b *host) {
	t.Helper()
	var hosts [2]*host
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(memcable.Config{})
	for i := range hosts {
		d, err := device.Open(device.Config{
			Port: ports[i], Waiter: memcable.NewWaiter(ports[i]), Seed: uint64(i) + 1,
			Engine: engine.Config{
				MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(ips[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 5)),
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return macs[1-i], a == ips[1-i] },
			},
		})
		must(t, err)
		h := &host{dev: d, ctx: d.Context()}
		h.pd, err = h.ctx.AllocPD()
		must(t, err)
		h.cq, err = h.ctx.CreateCQ(64)
		must(t, err)
		hosts[i] = h
		t.Cleanup(func() { must(t, d.Close()) })
	}
	return hosts[0], hosts[1]
}

// newHosts makes two hosts with managers over TCP.
func newHosts(t testing.TB, change func(*rdmacm.OOBConfig)) (a, b *host) {
	t.Helper()
	a, b = newDevices(t)
	cfg := rdmacm.OOBConfig{Context: b.ctx, Listen: netip.AddrPortFrom(ips[1], 0)}
	if change != nil {
		change(&cfg)
	}
	var err error
	b.oob, err = rdmacm.NewOOB(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, b.oob.Close()) })
	a.oob, err = rdmacm.NewOOB(rdmacm.OOBConfig{Context: a.ctx, Port: b.oob.Addr().Port()})
	must(t, err)
	t.Cleanup(func() { must(t, a.oob.Close()) })
	a.cm, b.cm = a.oob, b.oob
	return a, b
}

func (h *host) newQP(t testing.TB) verbs.QP {
	t.Helper()
	q, err := h.pd.CreateQP(verbs.QPInit{SendCQ: h.cq, RecvCQ: h.cq})
	must(t, err)
	return q
}

func (h *host) in(d time.Duration) clock.Time { return h.ctx.Runtime().Now().Add(d) }

func state(t testing.TB, q verbs.QP) verbs.QPState {
	t.Helper()
	a, err := q.Query()
	must(t, err)
	return a.State
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, what string, err, sentinel error) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("%s: %v, want %q", what, err, sentinel)
	}
}

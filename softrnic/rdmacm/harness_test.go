package rdmacm_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio/memory"
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
	cm  *rdmacm.OOB
}

// newHosts makes a dialing host and a listening one on a cable.
func newHosts(t testing.TB, change func(*rdmacm.OOBConfig)) (a, b *host) {
	t.Helper()
	var hosts [2]*host
	var ports [2]*memory.Port
	ports[0], ports[1] = memory.Pair(memory.Config{})
	for i := range hosts {
		d, err := device.Open(device.Config{
			Port: ports[i], Waiter: memory.NewWaiter(0, ports[i]), Seed: uint64(i) + 1,
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
	cfg := rdmacm.OOBConfig{Context: hosts[1].ctx, Listen: netip.AddrPortFrom(ips[1], 0)}
	if change != nil {
		change(&cfg)
	}
	var err error
	hosts[1].cm, err = rdmacm.NewOOB(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, hosts[1].cm.Close()) })
	hosts[0].cm, err = rdmacm.NewOOB(rdmacm.OOBConfig{Context: hosts[0].ctx, Port: hosts[1].cm.Addr().Port()})
	must(t, err)
	t.Cleanup(func() { must(t, hosts[0].cm.Close()) })
	return hosts[0], hosts[1]
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

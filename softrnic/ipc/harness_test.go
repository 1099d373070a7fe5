package ipc_test

import (
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) {
	asProgram()
	goleak.VerifyTestMain(m)
}

var (
	ips  = [2]netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")}
	macs = [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
)

// house is two NICs joined by a cable, each served to other processes.
type house struct {
	dev     [2]*device.Device
	servers [2]*serve.Server
	sockets [2]string
}

// spins are the two ways to wait: to poll first, and to sleep at once.
var spins = map[string]time.Duration{"spin": 0, "block": -1}

func newHouse(t testing.TB, spin time.Duration, change func(*serve.Config)) *house {
	t.Helper()
	return newHouseOn(t, memcable.Config{}, spin, change)
}

// newHouseOn is newHouse with a configured cable.
func newHouseOn(t testing.TB, cable memcable.Config, spin time.Duration, change func(*serve.Config)) *house {
	t.Helper()
	return newHouseOf(t, cable, engine.Limits{}, spin, change)
}

// newHouseOf is newHouseOn with the limits of the NICs.
func newHouseOf(t testing.TB, cable memcable.Config, limits engine.Limits, spin time.Duration, change func(*serve.Config)) *house {
	t.Helper()
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(cable)
	return newHouseAt(t, func(i int) (packetio.Port, packetio.Waiter) { return ports[i], memcable.NewWaiter(ports[i]) }, limits, spin, change)
}

// newDirectHouse is a house like the shared process of a compact rack: its NICs are joined by direct
// links and what stands for a switch, and one Poller looks at the rings of all programs.
func newDirectHouse(t testing.TB, poller *serve.Poller) *house {
	t.Helper()
	fabric := direct.New()
	var ends [2]*direct.Port
	for i := range ends {
		ends[i] = fabric.Link(string(rune('a'+i))).Switch(0, 4200)
	}
	var rx packetio.Batch
	fabric.Switch(func() {
		for i, p := range ends {
			if n, err := p.Recv(&rx); n > 0 && err == nil {
				if _, err = ends[1-i].Send(&rx); err != nil {
					t.Error(err)
				}
			}
		}
	}, func() { go fabric.Do(func() {}) })
	open := func(i int) (packetio.Port, packetio.Waiter) {
		return fabric.Link(string(rune('a' + i))).Host(4200), direct.NewWaiter()
	}
	return newHouseAt(t, open, engine.Limits{}, 0, func(c *serve.Config) { c.Poller = poller })
}

func newPoller(t testing.TB, poll time.Duration) *serve.Poller {
	t.Helper()
	p, err := serve.NewPoller(poll)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

// newHouseAt is a house whose NICs have the ports that `open` opens.
func newHouseAt(t testing.TB, open func(i int) (packetio.Port, packetio.Waiter), limits engine.Limits, spin time.Duration, change func(*serve.Config)) *house {
	t.Helper()
	h := &house{}
	dir := t.TempDir()
	for i := range h.dev {
		port, waiter := open(i)
		d, err := device.Open(device.Config{
			Port: port, Waiter: waiter, Spin: spin, Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", Limits: limits, MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(ips[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				PKeys: verbstest.PKeys[i],
				Resolve: func(a netip.Addr) (wire.MAC, bool) {
					for k := range ips {
						if a == ips[k] {
							return macs[k], true
						}
					}
					return wire.MAC{}, false
				},
			},
		})
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
		h.dev[i] = d
		h.sockets[i] = filepath.Join(dir, "verbs"+string(rune('0'+i))+".sock")
		cfg := serve.Config{
			Path: h.sockets[i], Open: d.Context, Spin: spin,
			Manager: func(ctx verbs.Context) (serve.Manager, error) {
				return rdmacm.NewCM(rdmacm.CMConfig{Context: ctx})
			},
		}
		if change != nil {
			change(&cfg)
		}
		h.servers[i], err = serve.Listen(cfg)
		must(t, err)
		t.Cleanup(func() { must(t, h.servers[i].Close()) })
	}
	return h
}

// open attaches to a NIC.
func (h *house) open(t testing.TB, nic int) *ipc.Context {
	t.Helper()
	c, err := ipc.Open(ipc.Config{Socket: h.sockets[nic], Name: t.Name()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// world is a house for an application that is attached to both NICs.
func (h *house) world(t testing.TB) *verbstest.World {
	w := worldOf(t, h.sockets)
	w.Faults = faults(h.dev)
	return w
}

func worldOf(t testing.TB, sockets [2]string) *verbstest.World {
	t.Helper()
	h := &house{sockets: sockets}
	w := &verbstest.World{Again: func(t testing.TB, nic int) verbs.Context { return h.open(t, nic) }}
	for i := range sockets {
		c := h.open(t, i)
		w.Contexts[i], w.Managers[i] = c, c.Manager()
	}
	return w
}

type faults [2]*device.Device

func (f faults) Down(nic int)                         { f[nic].Down() }
func (f faults) Up(nic int)                           { f[nic].Up() }
func (f faults) Link(nic int, up bool)                { f[nic].SetLink(up) }
func (f faults) FailQP(nic int, n wire.QPN) error     { return f[nic].FailQP(n) }
func (f faults) OverrunCQs(nic int, n wire.QPN) error { return f[nic].OverrunCQs(n) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

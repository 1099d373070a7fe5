package uverbs_test

import (
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// house is two NICs of this process on a cable, for unmodified programs: what a rack does with
// hosts, without one.
type house struct {
	sockets [2]string
	servers [2]*serve.Server
	devices [2]*device.Device
	// timeout is that of new programs' queue pairs for an ACK, as a code of IBTA: 16.8 ms at first.
	timeout uint8
}

// newHouseThat is newHouse with NICs whose regions have distinct keys, if distinct is set.
func newHouseThat(t testing.TB, distinct bool) *house {
	t.Helper()
	return newHouseWith(t, serve.Limits{}, -1, engine.Config{DistinctKeys: distinct})
}

var (
	ips  = [2]netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")}
	macs = [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
)

func newHouse(t testing.TB, limits serve.Limits) *house {
	t.Helper()
	return newHouseThatPolls(t, limits, -1)
}

// newHouseThatPolls is newHouse with servers that poll for this time before they sleep.
func newHouseThatPolls(t testing.TB, limits serve.Limits, spin time.Duration) *house {
	t.Helper()
	return newHouseOf(t, limits, spin, engine.Limits{})
}

// newHouseOf is newHouseThatPolls with the limits of the NICs, and changes of the servers'
// configuration.
func newHouseOf(t testing.TB, limits serve.Limits, spin time.Duration, nic engine.Limits, changes ...func(*serve.Config)) *house {
	t.Helper()
	return newHouseWith(t, limits, spin, engine.Config{Limits: nic}, changes...)
}

// newHouseWith is newHouseOf with more of the configuration of the NICs.
func newHouseWith(t testing.TB, limits serve.Limits, spin time.Duration, nic engine.Config, changes ...func(*serve.Config)) *house {
	t.Helper()
	dir, h := t.TempDir(), &house{timeout: 12}
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(memcable.Config{})
	for i := range ports {
		d, err := device.Open(device.Config{
			Port: ports[i], Waiter: memcable.NewWaiter(ports[i]), Spin: -1, Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", Limits: nic.Limits, DistinctKeys: nic.DistinctKeys, MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(ips[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				PKeys: []uint16{0xffff, 0x8001},
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
		h.devices[i] = d
		h.sockets[i] = filepath.Join(dir, "verbs"+string(rune('0'+i))+".sock")
		cfg := serve.Config{
			Path: h.sockets[i], Open: d.Context, Spin: spin, Limits: limits,
			Allow: func(uint32) bool { return true },
		}
		for _, change := range changes {
			change(&cfg)
		}
		h.servers[i], err = serve.Listen(cfg)
		must(t, err)
		t.Cleanup(func() { must(t, h.servers[i].Close()) })
	}
	return h
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

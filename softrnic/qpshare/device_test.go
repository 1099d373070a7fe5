package qpshare_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/qpshare"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ips  = [2]netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")}
	macs = [2]wire.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
)

// hosts starts two NICs in real time on a cable: the first is the application's, the second has a
// memory service.
func hosts(t *testing.T, cable memcable.Config) (devs [2]*device.Device, ctx verbs.Context, cm *rdmacm.CM) {
	t.Helper()
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(cable)
	var serve verbs.Context
	var managers [2]*rdmacm.CM
	for i := range devs {
		d, err := device.Open(device.Config{
			Port: ports[i], Waiter: memcable.NewWaiter(ports[i]), Spin: -1, Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(ips[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return macs[1-i], a == ips[1-i] },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		devs[i], serve = d, d.Context()
		if i == 0 {
			ctx = serve
		}
		if managers[i], err = rdmacm.NewCM(rdmacm.CMConfig{Context: serve}); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	s, err := memservice.New(serve, managers[1], memservice.Config{Region: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ended); _ = s.Serve() }()
	t.Cleanup(func() {
		for i := range devs {
			if err := errors.Join(managers[i].Close(), devs[i].Close()); err != nil {
				t.Error(err)
			}
		}
		<-ended
	})
	return devs, ctx, managers[0]
}

// Goroutines share a queue pair over a cable that is down for some time: each gets its own results,
// and all go on.
func TestThreadsInRealTime(t *testing.T) {
	var dead atomic.Bool
	_, ctx, cm := hosts(t, memcable.Config{Filter: func(int, int, packetio.Frame) int {
		if dead.Load() {
			return 0
		}
		return 1
	}})
	const threads, rounds = 8, 60
	hub, err := qpshare.New(qpshare.Config{Context: ctx, Manager: cm, Members: threads, Shared: []string{memservice.Service}})
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int64
	var wg sync.WaitGroup
	half := make(chan struct{}, threads)
	for i := range threads {
		wg.Go(func() {
			err := member(hub, i, ips[1], rdmacm.Params{Timeout: 8}, ctx.Runtime(), func(th *thread, rt verbs.Runtime) error {
				for n := uint64(1); n <= rounds; n++ {
					if n == rounds/2 {
						half <- struct{}{}
					}
					for th.add(n<<8|uint64(th.id), rt.Now().Add(5*time.Second)) != nil {
						failed.Add(1)
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("thread %d: %v", i, err)
			}
		})
	}
	<-half
	dead.Store(true)
	time.AfterFunc(20*time.Millisecond, func() { dead.Store(false) })
	wg.Wait()
	t.Logf("%d operations failed while the cable was dead", failed.Load())
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
}

// When the NIC crashes, every waiting thread gets an error.
func TestDeathOfTheNICEndsWaits(t *testing.T) {
	devs, ctx, cm := hosts(t, memcable.Config{})
	const threads = 4
	hub, err := qpshare.New(qpshare.Config{Context: ctx, Manager: cm, Members: threads, Shared: []string{memservice.Service}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	started := make(chan struct{}, threads)
	for i := range threads {
		wg.Go(func() {
			err := member(hub, i, ips[1], rdmacm.Params{}, ctx.Runtime(), func(th *thread, rt verbs.Runtime) error {
				if err := th.add(1, rt.Now().Add(5*time.Second)); err != nil {
					return err
				}
				started <- struct{}{}
				if err := th.Until(rt.Now().Add(time.Minute), func() bool { return false }); !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("thread %d waited, and got %v", i, err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("thread %d: %v", i, err)
			}
		})
	}
	for range threads {
		<-started
	}
	devs[0].Down()
	wg.Wait()
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
}

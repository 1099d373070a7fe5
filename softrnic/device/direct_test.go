package device

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// openDirect starts two devices on direct links. Between them stands a switch that passes each frame
// from one to the other.
func openDirect(t testing.TB, spin time.Duration) [2]*Device {
	t.Helper()
	return openDirectWith(t, spin, func(int, *Config) {})
}

// openDirectWith is openDirect with a change of the configuration of each device.
func openDirectWith(t testing.TB, spin time.Duration, change func(i int, c *Config)) [2]*Device {
	t.Helper()
	fabric := direct.New()
	var d [2]*Device
	var ends [2]*direct.Port
	var rx packetio.Batch
	names := [2]string{"a", "b"}
	for i, name := range names {
		ends[i] = fabric.Link(name).Switch(0, 4200)
	}
	fabric.Switch(func() {
		for i, p := range ends {
			if n, err := p.Recv(&rx); n > 0 && err == nil {
				_, err = ends[1-i].Send(&rx)
				must(t, err)
			}
		}
	}, func() { go fabric.Do(func() {}) })
	for i := range d {
		var err error
		cfg := Config{
			Port: fabric.Link(names[i]).Host(4200), Waiter: direct.NewWaiter(), Spin: spin, Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", MAC: macs[i], GIDs: []verbs.GID{verbs.GIDOf(ips[i])}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				PKeys:   verbstest.PKeys[i],
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return macs[1-i], a == ips[1-i] },
			},
		}
		change(i, &cfg)
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

// BenchmarkDirectRead measures 8-byte READs over direct links, one after the other.
func BenchmarkDirectRead(b *testing.B) {
	d := openDirect(b, 0)
	x, y := newNode(b, d[0].Context()), newNode(b, d[1].Context())
	connect(b, x, y)
	wr := []verbs.SendWR{{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{x.mr.SGE(0, 8)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}}
	var wc [1]verbs.WC
	b.ReportAllocs()
	for b.Loop() {
		must(b, x.qp.PostSend(wr...))
		for {
			if n, _ := x.cq.Poll(wc[:]); n > 0 {
				break
			}
			must(b, x.cq.Wait(clock.Never))
		}
	}
}

// A frame is not left behind by a thread that has only looked into the device.
func TestLookedInto(t *testing.T) {
	d := openDirect(t, 0)
	x, y := newNode(t, d[0].Context()), newNode(t, d[1].Context())
	connectPatiently(t, x, y, 20)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if err := d[1].Err(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{x.mr.SGE(0, 8)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}
	for range 3000 {
		must(t, x.qp.PostSend(wr))
		if wc := x.one(t); wc.Status != verbs.Success {
			t.Fatal(wc.Status)
		}
	}
	close(stop)
	<-stopped
	if c := d[0].Counters(); c.LocalAckTimeoutErr != 0 {
		t.Errorf("%d timeouts on a link that loses nothing", c.LocalAckTimeoutErr)
	}
}

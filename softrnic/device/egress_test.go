package device

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// withQueues gives a NIC a rate, and makes priority 0 lossless, so that pauses stop it.
func withQueues(c *Config) {
	q := portqueue.Config{Rate: 1e9, Buffer: 1 << 20, Own: 1 << 20, Lateness: time.Millisecond}
	q.Classes[0].Lossless = true
	c.Queues = &q
}

// sample returns a counter of the NIC's queues, 0 if it is not listed.
func sample(d *Device, name string) uint64 {
	for _, s := range d.QueueSamples() {
		if s.Name == name {
			return s.Value
		}
	}
	return 0
}

// A NIC with queues works as one without, stops while the other end of its link pauses it, and goes on
// when the pause ends.
func TestQueuedNICObeysPauses(t *testing.T) {
	d := openPair(t, 0, memcable.Config{}, withQueues)
	a, b := newNode(t, d[0].Context()), newNode(t, d[1].Context())
	connectPatiently(t, a, b, 20)
	post := func() {
		must(t, a.qp.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 4096)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	}
	post()
	a.one(t)
	pause := func(quanta uint16) {
		d[1].With(func(*engine.Engine) {
			d[1].core.out.Add(0, (&wire.Pause{Enabled: 1, Time: [8]uint16{quanta}}).AppendTo(nil))
			var now packetio.Batch
			now.Frames = append(now.Frames, d[1].core.out.Frames...)
			d[1].core.out.Reset()
			if _, err := d[1].core.link.port.Send(&now); err != nil {
				t.Error(err)
			}
		})
	}
	before := sample(d[0], "rx_prio0_pause")
	for stop := time.Now().Add(20 * time.Second); ; {
		pause(0xffff) // 33 ms
		for sample(d[0], "rx_prio0_pause") == before && time.Now().Before(stop) {
			time.Sleep(time.Millisecond)
		}
		sent := sample(d[0], "tx_prio0_packets")
		post()
		if sample(d[0], "tx_prio0_packets") == sent {
			break // the packets wait
		}
		if a.one(t); time.Now().After(stop) {
			t.Fatal("the NIC sends in spite of the pause")
		}
		before = sample(d[0], "rx_prio0_pause")
	}
	a.one(t) // the pause ends by itself
	if sample(d[0], "rx_prio0_pause_transition") == 0 || sample(d[0], "rx_prio0_pause_duration") == 0 {
		t.Errorf("counters %v", d[0].QueueSamples())
	}
	if s := d[0].QueueSamples(); !strings.HasPrefix(s[0].Name, "tx_prio0_") {
		t.Errorf("the first counter is %s", s[0].Name)
	}
}

// A NIC that is down sends nothing that waited.
func TestQueuesOfACrashedNIC(t *testing.T) {
	d := openPair(t, 0, memcable.Config{}, withQueues)
	d[0].With(func(*engine.Engine) {
		now := d[0].core.clock.Now()
		d[0].core.egress.bank.Pause(now, 0, 0, 0xffff)
		d[0].core.egress.bank.Offer(now, -1, 0, packetio.Frame{Data: make([]byte, 60)}, "")
	})
	d[0].Down()
	d[0].With(func(*engine.Engine) {
		if u := d[0].core.egress.bank.Used(); u.Total() != 0 {
			t.Errorf("%+v", u)
		}
	})
}

func TestQueuesAreChecked(t *testing.T) {
	p, q := memcable.Pair(memcable.Config{})
	cfg := Config{Port: p, Waiter: memcable.NewWaiter(p), Queues: &portqueue.Config{}}
	cfg.Engine.MAC = macs[0]
	if d, err := Open(cfg); err == nil {
		_ = d.Close()
		t.Error("a NIC whose queues have no memory is opened")
	}
	must(t, p.Close())
	must(t, q.Close())
}

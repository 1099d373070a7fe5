package switchd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// guest connects a guest as host number place of the bench.
func (b *bench) guest(name string, place int) {
	b.t.Helper()
	b.mu.Lock()
	for len(b.hosts) <= place {
		b.hosts, b.ends = append(b.hosts, nil), append(b.ends, nil)
	}
	b.mu.Unlock()
	b.plugIn(place)
	if err := b.guests.Plug(Plugged{Host: name, Ifname: "g-" + name}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) names() (names []string) {
	s, err := b.Status()
	if err != nil {
		b.t.Error(err)
	}
	for _, p := range s.Ports {
		names = append(names, p.Host+" "+string(p.State))
	}
	return names
}

func TestGuestComesAndGoes(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.guest("web", 3)
		if err := b.guests.Plug(Plugged{Host: "web", Ifname: "g-web"}); err != nil {
			t.Errorf("the same again: %v", err)
		}
		b.send(3, frame(3, -1))
		b.expect("from the guest", 1, 1, 1, 0)
		b.send(0, frame(0, 3))
		b.expect("to the guest", 0, 0, 0, 1)
		if _, err := b.faults.Inject(fault.Rule{Kind: fault.Loss, Link: "web", Probability: 1}); err != nil {
			t.Fatal(err)
		}
		b.send(0, frame(0, 3))
		b.expect("lost on the guest's link", 0, 0, 0, 0)
		if err := b.guests.Unplug("web"); err != nil {
			t.Fatal(err)
		}
		if f, _ := b.faults.Faults(); len(f) != 0 {
			t.Errorf("faults of a guest that has gone: %v", f)
		}
		if got, want := b.names(), []string{"h0 up", "h1 up", "h2 up"}; !slices.Equal(got, want) {
			t.Errorf("ports %v, want %v", got, want)
		}
		b.guest("db", 3) // gets the number of the removed guest
		b.send(0, frame(0, -1))
		b.expect("to the next guest", 0, 1, 1, 1)
		if got, want := b.names(), []string{"h0 up", "h1 up", "h2 up", "db up"}; !slices.Equal(got, want) {
			t.Errorf("ports %v, want %v", got, want)
		}
	})
}

func TestGuestRefused(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		for name, p := range map[string]Plugged{
			"a host's name":    {"h0", "g-x"},
			"a host's port":    {"x", "p1"},
			"no name":          {"", "g-x"},
			"too long":         {"x", strings.Repeat("y", 16)},
			"no such port yet": {"x", "g-x"},
		} {
			if err := b.guests.Plug(p); err == nil {
				t.Errorf("%s: plugged", name)
			}
		}
		if got, want := b.names(), []string{"h0 up", "h1 up", "h2 up"}; !slices.Equal(got, want) {
			t.Errorf("ports %v, want %v", got, want)
		}
		if err := b.guests.Unplug("h0"); !errors.Is(err, handler.ErrRefused) {
			t.Errorf("unplug a host: %v", err)
		}
		for _, host := range []string{"", "web"} {
			if err := b.guests.Unplug(host); !errors.Is(err, handler.ErrGone) {
				t.Errorf("unplug %q: %v", host, err)
			}
		}
	})
}

func TestGuestAndPartition(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		if err := b.faults.SetPartition([][]string{{"h0"}}); err != nil {
			t.Fatal(err)
		}
		b.guest("web", 3)
		b.send(3, frame(3, -1))
		b.expect("h0 is cut from guests, too", 0, 1, 1, 0)
		if err := b.faults.SetPartition([][]string{{"h0", "web"}, {"h1"}}); err != nil {
			t.Fatal(err)
		}
		if err := b.guests.Unplug("web"); err != nil {
			t.Fatal(err)
		}
		if s, _ := b.Status(); len(s.Partition) != 2 {
			t.Errorf("partition %v", s.Partition)
		}
	})
}

// Nothing of a guest that has gone reaches the next guest with the number of its port: no frame that
// a fault delays, no address, no counter.
func TestNextGuestInheritsNothing(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		b.guest("web", 3)
		b.send(3, frame(3, -1))
		b.expect("from the guest", 1, 1, 1, 0)
		b.inject(fault.Rule{Kind: fault.Delay, Link: "web", Delay: 10 * time.Millisecond})
		b.send(0, frame(0, 3))
		b.send(3, frame(3, 1))
		if s, _ := b.Status(); s.Delayed != 2 {
			t.Fatalf("%d frames are delayed, want 2", s.Delayed)
		}
		if err := b.guests.Unplug("web"); err != nil {
			t.Fatal(err)
		}
		if s, _ := b.Status(); s.Delayed != 0 {
			t.Errorf("%d frames of the guest that has gone are delayed", s.Delayed)
		}
		b.guest("db", 3) // gets the number of the removed guest
		time.Sleep(time.Second)
		synctest.Wait()
		b.expect("delayed frames of the former guest", 0, 0, 0, 0)
		c, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if p := c.Ports[3]; p.Host != "db" || p.RxPackets != 0 || p.TxPackets != 0 || p.SentPackets != 0 || p.SentBytes != 0 || len(p.Drops) != 0 {
			t.Errorf("counters of a guest that has sent and received nothing: %+v", p)
		}
		if s, _ := b.Status(); s.Ports[3].RxPacketRate != 0 || s.Ports[3].TxPacketRate != 0 {
			t.Errorf("rates of a guest that has sent and received nothing: %+v", s.Ports[3])
		}
		b.send(0, frame(0, 3)) // nothing is known of the former guest: the frame is flooded
		b.expect("to the former guest", 0, 1, 1, 1)
	})
}

// The number of a guest that has gone is the port of no host: no partition can name it, and no list of
// hosts has it.
func TestPartitionOfAGuestThatHasGone(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.guest("web", 3)
		if err := b.guests.Unplug("web"); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"", "web"} {
			err := b.faults.SetPartition([][]string{{name}, {"h0"}})
			if !errors.Is(err, errPartition) || !strings.HasSuffix(err.Error(), "there are h0, h1, h2") {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// The switch says which host is at a port whose number a former guest had.
func TestPortsOfGuestsAreNamed(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.guest("web", 3)
		b.guest("db", 4)
		if err := b.guests.Unplug("web"); err != nil {
			t.Error(err)
		}
		b.send(4, frame(4, -1))
		c := control.ClientOf(b.Mux())
		var macs []MAC
		if err := c.Call(b.t.Context(), "GET", "/macs", nil, &macs); err != nil || len(macs) != 1 || macs[0].Port != 4 || macs[0].Host != "db" {
			t.Errorf("%+v, %v", macs, err)
		}
		var s Snooping
		if err := c.Call(b.t.Context(), "GET", "/groups", nil, &s); err != nil || !slices.Equal(s.Hosts, []string{"h0", "h1", "h2", "", "db"}) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

package switchd

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// describedRack is a rack with hosts of these names, whose ports are p0 and so on as on the bench.
func describedRack(names ...string) *rackfile.Rack {
	r := &rackfile.Rack{Name: "bench"}
	for _, name := range names {
		r.Hosts = append(r.Hosts, rackfile.Host{Name: name, Port: "p" + name[1:]})
	}
	return r
}

// When the description has other hosts, the switch has their ports, and traffic between the hosts that
// stay goes on.
func TestSwitchFollowsTheDescription(t *testing.T) {
	now, failed := describedRack("h0", "h1", "h2"), error(nil)
	onBench(t, func(c *Config) {
		c.Described, c.HostLinks = now, linksAt(rackfile.SwitchName)
		c.Describe = func() (*rackfile.Rack, error) { return now, failed }
	}, func(b *bench) {
		b.guest("web", 3)
		b.mu.Lock()
		b.hosts, b.ends = append(b.hosts, nil), append(b.ends, nil)
		b.mu.Unlock()
		b.plugIn(4)
		now = describedRack("h0", "h2", "h4")
		if _, err := b.faults.Inject(fault.Rule{Kind: fault.Loss, Link: "h1", Probability: 1}); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.hosts[1], b.ends[1], b.ends[4] = b.hosts[4], b.ends[4], nil // h4 gets the number that h1 had
		b.mu.Unlock()
		for range 2 { // the second time changes nothing
			if err := b.Daemon.hosts.reload(); err != nil {
				t.Fatal(err)
			}
			if got, want := b.names(), []string{"h0 up", "h4 up", "h2 up", "web up"}; !slices.Equal(got, want) {
				t.Errorf("ports %v, want %v", got, want)
			}
		}
		if f, _ := b.faults.Faults(); len(f) != 0 {
			t.Errorf("faults of a host that has gone: %v", f)
		}
		b.send(0, frame(0, -1))
		b.expect("to all", 0, 1, 1, 1)
		if got := b.programs.described.Load(); got != now {
			t.Errorf("rules are read by %v", got.HostNames())
		}

		failed = errors.New("no file")
		if err := b.Daemon.hosts.reload(); !errors.Is(err, failed) {
			t.Errorf("a description that cannot be read: %v", err)
		}
		failed, now = nil, describedRack("h0", "h2", "h4", "h7") // h7 has no interface
		if err := b.Daemon.hosts.reload(); !errors.Is(err, errNoPort) {
			t.Errorf("a host without an interface: %v", err)
		}
		if got, want := b.names(), []string{"h0 up", "h4 up", "h2 up", "web up"}; !slices.Equal(got, want) {
			t.Errorf("ports %v, want %v", got, want)
		}
	})
}

// While a request opens a port, the watcher does not open it, too: the memory link of a host connects
// to the end that was made last.
func TestPortIsOpenedOnce(t *testing.T) {
	opened := 0
	onBench(t, func(c *Config) {
		open := c.Open
		c.Open = func(i int, l Link) (packetio.Port, error) {
			if l.Guest {
				opened++
				time.Sleep(time.Second) // of the bubble: the watcher checks its ports many times meanwhile
			}
			return open(i, l)
		}
	}, func(b *bench) {
		b.guest("web", 3)
		if opened != 1 {
			t.Errorf("the port was opened %d times", opened)
		}
	})
}

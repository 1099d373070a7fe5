package hostd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Addresses keep their index while others come and go. The link-local address of the MAC address, and
// what the interface did not have at first, stay.
func TestAddressTable(t *testing.T) {
	mac := wire.MAC{2, 0x72, 0, 0, 0, 2}
	local := verbs.LinkLocalGID(mac)
	addrs := func(list string) (out []netip.Addr) {
		for _, s := range strings.Fields(list) {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	gids := []verbs.GID{verbs.GIDOf(addrs("10.0.0.2")[0]), verbs.GIDOf(addrs("fd00::2")[0]), local}
	show := func(p *addressTable) string {
		var texts []string
		for _, g := range p.gids {
			text := "-"
			if g == local {
				text = "local"
			} else if g != (verbs.GID{}) {
				text = g.Addr().String()
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, " ")
	}
	p := newAddressTable(mac, gids, addrs("10.0.0.2 fd00::2"))
	for _, c := range []struct{ now, want string }{
		{"10.0.0.2 fd00::2", "10.0.0.2 fd00::2 local"},
		{"10.0.0.2 fd00::2 10.0.0.9", "10.0.0.2 fd00::2 local 10.0.0.9"},
		{"10.0.0.9", "- - local 10.0.0.9"},
		{"10.0.0.9 10.0.0.8", "10.0.0.8 - local 10.0.0.9"},
		{"10.0.0.8 fd00::2", "10.0.0.8 fd00::2 local -"},
		{"", "- - local -"},
	} {
		p.update(addrs(c.now))
		if got := show(&p); got != c.want {
			t.Errorf("with %q: %s, want %s", c.now, got, c.want)
		}
	}
	p = newAddressTable(mac, gids, addrs("10.0.0.2"))
	p.update(nil)
	if got := show(&p); got != "- fd00::2 local" {
		t.Errorf("an address that the interface never had: %s", got)
	}
	p.update(addrs("fd00::2"))
	if p.update(nil); show(&p) != "- - local" {
		t.Errorf("an address that came after the daemon's start, and went: %s", show(&p))
	}
	var many []netip.Addr
	for i := range 200 {
		many = append(many, netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i)))
	}
	if p.update(many); len(p.gids) != maxAddresses {
		t.Errorf("%d entries, want %d", len(p.gids), maxAddresses)
	}
}

// cut is a port whose carrier can be taken away.
type cut struct {
	end
	down atomic.Bool
}

func (c *cut) LinkUp() bool { return !c.down.Load() }

// Files that cannot be written are written as soon as they can, without another change of the port.
func TestFilesOfThePortAreWrittenLater(t *testing.T) {
	r := testRack()
	self := &r.Hosts[0]
	a, _ := memcable.Pair(memcable.Config{})
	link := &cut{end: end{a, self.MAC}}
	dir := describe(t, r)
	h, err := Open(Config{
		Dir: dir, Name: self.Name, Log: slog.New(slog.DiscardHandler), listen: self.IPv4,
		open: func(*rackfile.Host) (port, packetio.Waiter, error) { return link, memcable.NewWaiter(a), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	tree := rackfile.Paths{Dir: dir}.VerbsTree(self.Name)
	state := func() string {
		b, err := os.ReadFile(filepath.Join(tree, "class/infiniband/rxe0/ports/1/state"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	obstacle := filepath.Join(tree, ".new") // where the next content of a file goes
	if err := os.Mkdir(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	link.down.Store(true)
	eventually(t, "the NIC knows that the carrier is gone", func() bool { return !h.Status().NIC.Link })
	if got := state(); got != "4: ACTIVE" {
		t.Errorf("state %s in a file that cannot be written", got)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file says so", func() bool { return state() == "1: DOWN" })
}

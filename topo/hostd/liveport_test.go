package hostd

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

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
		{"10.0.0.8 fd00::2", "10.0.0.8 fd00::2 local"},
		{"", "- - local"},
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
	var many []netip.Addr
	for i := range 200 {
		many = append(many, netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i)))
	}
	if p.update(many); len(p.gids) != maxAddresses {
		t.Errorf("%d entries, want %d", len(p.gids), maxAddresses)
	}
}

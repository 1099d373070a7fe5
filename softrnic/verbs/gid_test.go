package verbs

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestLinkLocalGID(t *testing.T) {
	mac := wire.MAC{0x52, 0x54, 0, 0x77, 0, 1}
	g := LinkLocalGID(mac)
	if want := GIDOf(netip.MustParseAddr("fe80::5054:ff:fe77:1")); g != want {
		t.Errorf("%v, want %v", g, want)
	}
	if m, ok := g.LinkLocalMAC(); !ok || m != mac {
		t.Errorf("back to %v, %v", m, ok)
	}
	for _, s := range []string{"10.0.0.1", "fd77::5054:ff:fe77:1", "fe80::1", "fe80:0:0:1:5054:ff:fe77:1", "fe80::5354:ff:fe77:1"} {
		if m, ok := GIDOf(netip.MustParseAddr(s)).LinkLocalMAC(); ok {
			t.Errorf("%s holds %v", s, m)
		}
	}
}

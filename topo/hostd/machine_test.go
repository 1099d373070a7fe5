package hostd

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// The NIC towards a peer is the one in whose subnets the peer is.
func TestNICTowards(t *testing.T) {
	r, err := rackfile.Parse([]byte("hosts: [{name: cn0, role: compute, nics: 3}, {name: cn1, role: compute}]"))
	if err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[string]int{"10.77.0.9": 0, "10.77.1.3": 1, "fd00:77:0:2::3": 2, "10.77.2.2": 2, "192.0.2.1": 0} {
		if got := nicTowards(r, &r.Hosts[0], netip.MustParseAddr(peer)); got != want {
			t.Errorf("towards %s by NIC %d, want %d", peer, got, want)
		}
	}
	if got := nicTowards(r, &r.Hosts[1], netip.MustParseAddr("10.77.1.3")); got != 0 {
		t.Errorf("a host with one NIC uses NIC %d", got)
	}
}

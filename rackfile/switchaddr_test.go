package rackfile

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Each switch of a fabric has addresses of its own, by which hosts and switches find it. The hosts have
// those that they have with one switch.
func TestSwitchAddresses(t *testing.T) {
	r, err := Parse([]byte(fabricFile))
	if err != nil {
		t.Fatal(err)
	}
	one, err := Parse([]byte(strings.NewReplacer("fabric: {leaves: 3, spines: 2}", "", ", leaf: leaf2", "", "leaf1-spine0", "cn1").Replace(fabricFile)))
	if err != nil {
		t.Fatal(err)
	}
	owners := make(map[any]string)
	claim := func(name string, addresses ...any) {
		for _, a := range addresses {
			if owners[a] != "" {
				t.Errorf("%s and %s have the address %v", owners[a], name, a)
			}
			owners[a] = name
		}
	}
	for i := range r.Hosts {
		h, o := &r.Hosts[i], &one.Hosts[i]
		claim(h.Name, h.IPv4, h.IPv6, h.MAC)
		if h.IPv4 != o.IPv4 || h.IPv6 != o.IPv6 || h.MAC != o.MAC {
			t.Errorf("%s: %v %v %v, with one switch %v %v %v", h.Name, h.IPv4, h.IPv6, h.MAC, o.IPv4, o.IPv6, o.MAC)
		}
	}
	for i, s := range r.SwitchAddresses() {
		claim(s.Name, s.IPv4, s.IPv6, s.MAC)
		if s.Name != r.SwitchNames()[i] || !r.Subnet.Contains(s.IPv4) || !r.Subnet6.Contains(s.IPv6) {
			t.Errorf("switch %d: %+v", i, s)
		}
		own := r.OnSwitch(s.Name).Switch
		if own.IPv4 != s.IPv4 || own.IPv6 != s.IPv6 || own.MAC != s.MAC {
			t.Errorf("%s describes itself as %v %v %v", s.Name, own.IPv4, own.IPv6, own.MAC)
		}
		for _, a := range []netip.Addr{s.IPv4, s.IPv6} {
			if mac, ok := r.Neighbour(a); !ok || mac != s.MAC || r.Names().Of(a) != s.Name {
				t.Errorf("%v: %v %v, %s", a, mac, ok, r.Names().Of(a))
			}
		}
	}
	if got := r.SwitchAddresses(); got[0].IPv4.String() != "10.77.0.1" || got[1].IPv4.String() != "10.77.0.254" || got[4].IPv6.String() != "fd00:77::fb" {
		t.Errorf("addresses %v", got)
	}
	want := SwitchAddress{SwitchName, netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd00:77::1"), macOf(one.Seed, 1)}
	if got := one.SwitchAddresses(); len(got) != 1 || got[0] != want || got[0].MAC != one.Switch.MAC {
		t.Errorf("one switch: %v, want %v", got, want)
	}
	if _, ok := one.Neighbour(netip.MustParseAddr("10.77.0.254")); ok {
		t.Error("a rack with one switch has a second one")
	}
}

// The addresses of switches are in no host's way: a subnet is too small or large enough, and a guest gets
// none of them. MAC addresses of switches are above those of all NICs, also where the subnet has fewer
// addresses than the rack has NICs.
func TestSwitchAddressesInSmallSubnets(t *testing.T) {
	file := func(fabric, subnet, subnet6, hosts string) string {
		return "fabric: " + fabric + "\nsubnet: " + subnet + "\nsubnet6: " + subnet6 + "\nhosts:\n  - {name: \"cn[" + hosts + "]\", role: compute}\n"
	}
	// A /28 has 16 numbers: 0, the broadcast address, 6 switches and 8 hosts.
	r, err := Parse([]byte(file("{leaves: 4, spines: 2}", "10.0.0.0/28", "fd00::/64", "0-7")))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.SwitchAddresses()[5].IPv4.String() + " " + r.Hosts[7].IPv4.String(); got != "10.0.0.10 10.0.0.9" {
		t.Errorf("the last switch and the last host: %s", got)
	}
	if g, err := r.NewGuest("g", "g", 0); err == nil || !strings.Contains(err.Error(), "subnet 10.0.0.0/28 has no address left") {
		t.Errorf("a guest gets %v, %v", g.IPv4, err)
	}
	for text, want := range map[string]string{
		file("{leaves: 4, spines: 2}", "10.0.0.0/28", "fd00::/64", "0-8"):   "subnet 10.0.0.0/28 is too small for 6 switches and 9 hosts",
		file("{leaves: 4, spines: 2}", "10.0.0.0/16", "fd00::/124", "0-8"):  "subnet6 fd00::/124 is too small for 6 switches and 9 hosts",
		file("{leaves: 16, spines: 8}", "10.0.0.0/28", "fd00::/64", "0-0"):  "subnet 10.0.0.0/28 is too small for 24 switches and 1 hosts",
		file("{leaves: 16, spines: 8}", "10.0.0.0/16", "fd00::/127", "0-0"): "subnet6 fd00::/127 is too small",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	r, err = Parse([]byte("fabric: {leaves: 4, spines: 2}\nsubnet: 10.0.0.0/25\nhosts:\n  - {name: \"cn[0-99]\", role: compute, nics: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[wire.MAC]string)
	for i := range r.Hosts {
		seen[r.Hosts[i].MAC] = r.Hosts[i].Name
	}
	for _, s := range r.SwitchAddresses() {
		if seen[s.MAC] != "" {
			t.Errorf("%s and %s have the MAC address %v", s.Name, seen[s.MAC], s.MAC)
		}
	}
}

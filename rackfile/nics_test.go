package rackfile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

const twoNICs = `name: rails
mtu: 4200
hosts:
  - {name: "cn[0-1]", role: compute, nics: 2, window: 256}
  - name: ms0
    role: memory
    tos: 8
    nics:
      - {numa: 1}
      - {name: rxe_fast, mtu: 9000, tos: 104, quota: {programs: 3}}
`

// The further NICs follow the hosts, each with the number of its host in the next subnets.
func TestFurtherNICs(t *testing.T) {
	r, err := Parse([]byte(twoNICs))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.NICNames(), " "); got != "cn0 cn1 ms0 cn0/rxe1 cn1/rxe1 ms0/rxe_fast" {
		t.Errorf("links %s", got)
	}
	if got := strings.Join(r.HostNames(), " "); got != "cn0 cn1 ms0" {
		t.Errorf("hosts %s", got)
	}
	if n := len(r.ByRole(Compute)) + len(r.ByRole(Memory)); n != 3 {
		t.Errorf("%d hosts by role, want 3", n)
	}
	h, i, ok := r.Host("ms0/rxe_fast")
	if !ok || i != 5 || h.IPv4 != netip.MustParseAddr("10.77.1.4") || h.IPv6 != netip.MustParseAddr("fd00:77:0:1::4") {
		t.Fatalf("NIC 1 of ms0 is %+v", h)
	}
	if h.Machine() != "ms0" || h.Ifname() != "rack1" || h.Port != "ms0.1" || h.HostAlias() != "ms0-rack1" || h.Memory != 0 {
		t.Errorf("NIC 1 of ms0 is %+v", h)
	}
	if r.MTUOf(h) != 9000 || h.TOS != 104 || h.Quota.Programs != 3 || h.NIC.NUMA != nil {
		t.Errorf("its own keys: MTU %d, TOS %d, quota %+v, NUMA %v", r.MTUOf(h), h.TOS, h.Quota, h.NIC.NUMA)
	}
	if first, _, _ := r.Host("ms0"); first.TOS != 8 || first.Memory != defaultMemory || *first.NIC.NUMA != 1 || r.MTUOf(first) != 4200 {
		t.Errorf("the first NIC of ms0 is %+v", first)
	}
	if cn, _, _ := r.Host("cn1/rxe1"); cn.Window != 256 || cn.DeviceName() != "rxe1" {
		t.Errorf("NIC 1 of cn1 is %+v", cn)
	}
	macs := map[string]bool{}
	for _, h := range r.Hosts {
		macs[h.MAC.String()] = true
		if p, ok := r.ByAddr(h.IPv4); !ok || p.Name != h.Name {
			t.Errorf("%v belongs to %v", h.IPv4, p)
		}
	}
	if len(macs) != 6 {
		t.Errorf("%d MAC addresses, want 6", len(macs))
	}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(b); err != nil || !slices.Equal(again.NICNames(), r.NICNames()) || *again.Hosts[2].NIC.NUMA != 1 {
		t.Errorf("decoded: %v", err)
	}
}

// A rack whose hosts have one NIC has nothing of the others in its description.
func TestOneNIC(t *testing.T) {
	a, err := Parse([]byte("hosts: [{name: cn0, role: compute}]"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse([]byte("hosts: [{name: cn0, role: compute, nics: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	ja, _ := a.Encode() // it cannot fail
	jb, _ := b.Encode()
	if string(ja) != string(jb) || strings.Contains(string(ja), "nic") {
		t.Errorf("descriptions\n%s\n%s", ja, jb)
	}
}

func TestRailSubnets(t *testing.T) {
	for _, c := range []struct {
		p    string
		nth  int
		want string
	}{
		{"10.77.0.0/24", 0, "10.77.0.0/24"},
		{"10.77.0.0/24", 7, "10.77.7.0/24"},
		{"10.77.255.0/24", 1, "10.78.0.0/24"},
		{"10.0.0.0/9", 1, "10.128.0.0/9"},
		{"10.77.0.16/28", 2, "10.77.0.48/28"},
		{"fd00:77::/64", 3, "fd00:77:0:3::/64"},
		{"223.255.255.0/24", 1, ""},
		{"ff00::/8", 1, ""},
		{"126.0.0.0/8", 1, ""},
		{"169.253.0.0/16", 1, ""},
	} {
		got, ok := railSubnet(netip.MustParsePrefix(c.p), c.nth)
		if want := c.want; ok != (want != "") || ok && got.String() != want {
			t.Errorf("subnet %d behind %s is %v, %v; want %q", c.nth, c.p, got, ok, want)
		}
	}
}

// What hosts with several NICs cannot have is refused with what to write instead.
func TestNICsRefused(t *testing.T) {
	host := "hosts: [{name: cn0, role: compute, nics: 2}]\n"
	for in, want := range map[string]string{
		"onerma: {}\n" + host:                                                                                "leave out onerma",
		"connect: tcp\n" + host:                                                                              "take connect: cm",
		"subnet: 223.255.255.0/24\n" + host:                                                                  "no subnets of this size follow",
		"hosts: [{name: cn0, role: compute, nics: 9}]":                                                       "from 1 to 8",
		"hosts: [{name: cn0, role: compute, nics: []}]":                                                      "a host has 1 to 8",
		"hosts: [{name: cn0, role: compute, nics: [{name: mlx5}]}]":                                          "libibverbs takes rxe",
		"hosts: [{name: cn0, role: compute, nics: [{name: rxe1}, {}]}]":                                      "has the name rxe1 of NIC 0",
		"hosts: [{name: cn0, role: compute, nics: [{memory: 1MiB}]}]":                                        `unknown key "memory" in a NIC`,
		"hosts: [{name: cn0, role: compute, nics: 2}, {name: cn0-rack1, role: compute}]":                     "rename the host",
		"hosts: [{name: \"cn[0-128]\", role: compute, nics: 2}]":                                             "more than 256 NICs",
		"congestion: {rp_max_rate: 1Gbit}\nhosts: [{name: cn0, role: compute, nics: [{}, {recovery: irn}]}]": "recovery",
	} {
		if _, err := Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q", in, err, want)
		}
	}
}

func TestNamesOfNICs(t *testing.T) {
	p := Paths{Dir: "/r"}
	nic := &Host{Name: "cn0/rxe1", NIC: NIC{Of: "cn0", Nth: 1}}
	for got, want := range map[string]string{
		p.Log("cn0/rxe1"): "/r/log/cn0.log", p.Socket("cn0/rxe1"): "/r/sock/cn0.rxe1.sock", p.Netns("cn0/rxe1"): "/r/netns/cn0", p.VerbsOf(nic): "/r/sock/cn0.verbs1",
		p.VerbsTree("cn0/rxe1"): "/r/sock/cn0.sys", p.Crashed("cn0/rxe1"): "/r/crashed/cn0", MachineOf("cn0"): "cn0",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Names of ports differ, also where a host's name is too long for them, and every NIC is known by its address.
func TestPortsOfNICs(t *testing.T) {
	r, err := Parse([]byte("hosts: [{name: abcdefghijklmn, role: compute, nics: 2}, {name: nic, role: compute, nics: 3}]"))
	if err != nil {
		t.Fatal(err)
	}
	ports, names := map[string]string{}, r.Names()
	for _, h := range r.Hosts {
		if other := ports[h.Port]; other != "" {
			t.Errorf("%s and %s have the port %s", other, h.Name, h.Port)
		}
		if ports[h.Port] = h.Name; names.Of(h.IPv4) != h.Name {
			t.Errorf("%v is %s, want %s", h.IPv4, names.Of(h.IPv4), h.Name)
		}
	}
}

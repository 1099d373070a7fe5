package rackplan

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// An apply changes the quota of a NIC, and refuses what makes or removes NICs.
func TestNICs(t *testing.T) {
	parse := func(hosts string) *rackfile.Rack {
		t.Helper()
		r, err := rackfile.Parse([]byte("hosts:\n" + hosts))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	now := OfDescription(parse("- {name: a, role: compute, nics: 2}\n- {name: b, role: compute}\n"))
	for hosts, want := range map[string]string{
		"- {name: a, role: compute}\n- {name: b, role: compute}\n":                                               "host a with several NICs",
		"- {name: b, role: compute}\n":                                                                           "host a with several NICs",
		"- {name: a, role: compute, nics: 2}\n- {name: b, role: compute, nics: 3}\n":                             "host b with several NICs",
		"- {name: a, role: compute, nics: 2}\n- {name: b, role: compute}\n- {name: c, role: compute, nics: 2}\n": "host c with several NICs",
		"- {name: a, role: compute, nics: [{name: rxe_a}, {}]}\n- {name: b, role: compute}\n":                    "host a with several NICs",
		"- {name: a, role: compute, nics: [{}, {mtu: 9000}]}\n- {name: b, role: compute}\n":                      "a/rxe1: nic mtu 0 -> 9000",
	} {
		if _, err := Of(now, parse(hosts), true); !errors.Is(err, ErrRefused) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), Again(now.Rack.Name)) {
			t.Errorf("%s\ngot %v, want %q", hosts, err, want)
		}
	}
	named := func(name string) *rackfile.Host { return &rackfile.Host{Name: "b", NIC: rackfile.NIC{Device: name}} }
	if list := differences(named(""), named("rxe_b")); len(list) != 1 || !strings.HasPrefix(list[0], "nic name rxe0 -> rxe_b") {
		t.Errorf("a NIC with another name differs by %q", list)
	}
	p, err := Of(now, parse("- {name: a, role: compute, nics: [{}, {quota: {programs: 3}}]}\n- {name: b, role: compute}\n- {name: c, role: compute}\n"), false)
	if err != nil || len(p.Quotas) != 1 || p.Quotas[0] != "a/rxe1" || len(p.HostsIn) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if nic, _, ok := p.Rack.Host("a/rxe1"); !ok || nic.IPv4 != now.Rack.Hosts[2].IPv4 {
		t.Errorf("the NIC has other addresses: %+v", nic)
	}
	macs := map[string]string{}
	for _, h := range p.Rack.Hosts {
		if other := macs[h.MAC.String()]; other != "" {
			t.Errorf("%s and %s have the MAC address %v", other, h.Name, h.MAC)
		}
		macs[h.MAC.String()] = h.Name
	}
}

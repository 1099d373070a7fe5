package rackfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const machinesFile = `
fabric: {leaves: 4, spines: 0, machine: {leaf3: m1}}
machines:
  - {name: m1, ssh: ssh://root@10.0.0.1}
  - {name: m2, ssh: "ssh://lab@m2.example:2222", address: 10.0.0.2, port: 30000}
  - {name: m3, ssh: "ssh://10.0.0.3"}
hosts:
  - {name: "cn[0-3]", role: compute, nics: 2}
  - {name: ms0, role: memory, machine: m3}
  - {name: "ms[1-3]", role: memory, machine: m1}
  - {name: ms4, role: memory, leaf: leaf1}
`

func sliceOf(r *Rack, machine string) *Rack {
	own := *r
	own.Machine = machine
	return &own
}

func TestMachines(t *testing.T) {
	r, err := Parse([]byte(machinesFile))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range append(r.SwitchNames(), r.NICNames()...) {
		got = append(got, name+":"+r.MachineOf(name))
		if h, _, ok := r.Host(name); ok {
			got[len(got)-1] += ":" + h.Leaf
		}
	}
	want := "leaf0:m1 leaf1:m2 leaf2:m3 leaf3:m1 cn0:m1:leaf0 cn1:m2:leaf1 cn2:m3:leaf2 cn3:m1:leaf3 " +
		"ms0:m3:leaf2 ms1:m1:leaf0 ms2:m1:leaf3 ms3:m1:leaf0 ms4:m2:leaf1 " +
		"cn0/rxe1:m1:leaf3 cn1/rxe1:m2:leaf1 cn2/rxe1:m3:leaf2 cn3/rxe1:m1:leaf0"
	if strings.Join(got, " ") != want {
		t.Errorf("places %v\nwant   %s", got, want)
	}
	ends := func(at string) (list []string) {
		s := sliceOf(r, at)
		for _, c := range s.Trunks() {
			for _, from := range c.EndsHere() {
				if local, peer, ok := s.Remote(c, from); ok {
					list = append(list, fmt.Sprintf("%s %s %s", c.Name(), local, peer))
				}
			}
		}
		return list
	}
	for at, want := range map[string]string{
		"m1": "leaf0-leaf1 10.0.0.1:24791 10.0.0.2:30000, leaf0-leaf2 10.0.0.1:24792 10.0.0.3:24792, leaf1-leaf3 10.0.0.1:24795 10.0.0.2:30004, leaf2-leaf3 10.0.0.1:24796 10.0.0.3:24796",
		"m2": "leaf0-leaf1 10.0.0.2:30000 10.0.0.1:24791, leaf1-leaf2 10.0.0.2:30003 10.0.0.3:24794, leaf1-leaf3 10.0.0.2:30004 10.0.0.1:24795",
		"":   "",
	} {
		if got := strings.Join(ends(at), ", "); got != want {
			t.Errorf("trunks of %q: %s\nwant %s", at, got, want)
		}
	}
	if local, peer, ok := r.Remote(r.Trunks()[0], "leaf0"); !ok || local.String() != "10.0.0.1:24791" || peer.String() != "10.0.0.2:30000" {
		t.Errorf("the client, which has no end, sees %v %v", local, peer)
	}
	if r.MachineOf("leaf1-leaf3") != "m2" || r.MachineOf("nobody") != "" || r.SwitchOf("leaf0-leaf3") != "leaf0" {
		t.Error("the machine of a trunk is not that of its leaf")
	}
	encoded, err := sliceOf(r, "m3").Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(encoded)
	if err != nil || again.Machine != "m3" || !slices.Equal(again.Machines, r.Machines) || again.MachineOf("cn3") != "m1" {
		t.Errorf("decoded: %v %+v", err, again)
	}
	for _, change := range [][2]string{{`"machine": "m3"`, `"machine": "m4"`}, {"ssh://root@", "ssh://-o"}, {`"port": 30000`, `"port": 65535`}, {`"spines": 0`, `"spines": 1`}} {
		text := strings.Replace(string(encoded), change[0], change[1], 1)
		if _, err := Decode([]byte(text)); err == nil || text == string(encoded) {
			t.Errorf("a description with %s was decoded", change[1])
		}
	}
}

// Without the key fabric each machine has a leaf.
func TestMachinesAlone(t *testing.T) {
	r, err := Parse([]byte("machines: [{name: a, ssh: ssh://10.0.0.1}, {name: b, ssh: ssh://10.0.0.2}]\nhosts: [{name: \"cn[0-2]\", role: compute}]"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %v %v %s", r.Trunks()[0].Name(), r.Trunks()[0].Carried, r.Fabric.Places, r.MachineOf("cn2")); got != "leaf0-leaf1 true [a b] a" {
		t.Error(got)
	}
}

func TestMachinesMistakes(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"name: m2", "name: m1"}:                                               "machine m1 is given twice",
		{", address: 10.0.0.2", ""}:                                            `machine m2 lacks the key "address"`,
		{"ssh://10.0.0.3", "ssh://10.0.0.1"}:                                   "machines m1 and m3 have the same address",
		{"address: 10.0.0.2", "address: 10.0.0.1"}:                             "machines m1 and m2 have the same address", // also with another port
		{"ssh://10.0.0.3", "ssh://[fe80::3%25eth0]"}:                           "is no address of ssh",
		{"ssh://10.0.0.3", "ssh://[::ffff:10.0.0.3]"}:                          `machine m3 lacks the key "address"`,
		{"ssh://10.0.0.3", "ssh://0.0.0.0"}:                                    `machine m3 lacks the key "address"`,
		{"ssh://root@10.0.0.1", "ssh://root:pw@10.0.0.1"}:                      "has a password",
		{"ssh://root@10.0.0.1", "ssh://-oProxyCommand=x@10.0.0.1"}:             "is no address of ssh",
		{"ssh://root@10.0.0.1", "10.0.0.1"}:                                    "write it like ssh://root@10.0.0.1",
		{"ssh://root@10.0.0.1", "ssh://root@10.0.0.1/x"}:                       "is no address of ssh",
		{"ssh://10.0.0.3", "ssh://[fd00::3]"}:                                  "take IPv4 or IPv6 for all",
		{"address: 10.0.0.2", "address: 0.0.0.0"}:                              "is no address of a machine",
		{"leaf3: m1", "leaf3: m9"}:                                             `"m9" is no machine`,
		{"leaf3: m1", "leaf9: m1"}:                                             `"leaf9" is no switch`,
		{"leaf3: m1", "leaf2: m1"}:                                             "machine m3 has no switch",
		{"role: memory, machine: m3", "role: memory, machine: m9"}:             `"m9" is no machine`,
		{"leaf: leaf1", "leaf: leaf1, machine: m1"}:                            "leaf1 is on machine m2 and not on m1",
		{"spines: 0,", "spines: 0, strict: yes,"}:                              "neither true nor false",
		{"spines: 0,", "spines: 0, carrier: sctp,"}:                            "use one of [udp tcp]",
		{"port: 30000", "port: 65500"}:                                         "out of bounds",
		{"leaves: 4, spines: 0, machine: {leaf3: m1}", "leaves: 1, spines: 0"}: "machine m2 has no switch",
		{"leaves: 4, spines: 0", "leaves: 2, spines: 2"}:                       `"leaf3" is no switch`,
		{"machine: {leaf3: m1}", "machine: m1"}:                                "must be a mapping",
		{"fabric:", "cable: memory\nfabric:"}:                                  "leave out `cable: memory`",
		{"name: ms4", "name: leaf0-leaf1"}:                                     "is that of a switch or trunk",
	} {
		text := strings.Replace(machinesFile, change[0], change[1], 1)
		if text == machinesFile {
			t.Fatalf("nothing to replace: %q", change[0])
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v\nwant %s", change[1], err, want)
		}
	}
	for text, want := range map[string]string{
		"fabric: {leaves: 1, spines: 0}\n":                       "is one switch",
		"machines: [{name: m1, ssh: ssh://10.0.0.1}]\n":          "two machines or more",
		"fabric: {leaves: 2, spines: 1, machine: {leaf0: m1}}\n": "needs the key machines",
		"fabric: {leaves: 2, spines: 1, strict: true}\n":         "strict needs the key machines or carrier",
		"fabric: {leaves: 2, spines: 1, machine: {leaf0: a, leaf1: a, spine0: b}}\nmachines: [{name: a, ssh: ssh://10.0.0.1}, {name: b, ssh: ssh://10.0.0.2}]\n": "machine b has no leaf",
	} {
		if _, err := Parse([]byte(text + "hosts: [{name: cn0, role: compute, machine: b}]")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}

func TestTrunksOfOneMachineCarriedByDatagrams(t *testing.T) {
	parse := func(text string) *Rack {
		t.Helper()
		r, err := Parse([]byte(text + "hosts: [{name: cn0, role: compute}, {name: ms0, role: memory}]"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := parse("name: one\nfabric: {leaves: 2, spines: 1, carrier: udp, strict: true}\n")
	seen := make(map[string]bool)
	for _, c := range r.Trunks() {
		local, peer, ok := r.Remote(c, c.Leaf)
		back, forth, far := r.Remote(c, c.Far)
		if !ok || !far || local != forth || peer != back || local == peer || !local.Addr().IsLoopback() || !c.Carried {
			t.Errorf("%s: ends %v %v, from the other side %v %v", c.Name(), local, peer, back, forth)
		}
		seen[local.String()], seen[peer.String()] = true, true
		if _, _, ok := r.Remote(c, "leaf9"); ok {
			t.Errorf("%s ends at a switch that there is not", c.Name())
		}
	}
	if len(seen) != 4 {
		t.Errorf("two trunks have %d addresses", len(seen))
	}
	if pairs := parse("fabric: {leaves: 2, spines: 1}\n"); slices.ContainsFunc(pairs.Trunks(), func(c Trunk) bool { return c.Carried }) {
		t.Error("pairs of interfaces are carried")
	}
}

func FuzzParseLogin(f *testing.F) {
	for _, s := range []string{"ssh://root@10.0.0.1", "ssh://a@b:22", "ssh://[fd00::1]:2222", "ssh://-o@x", "ssh://x/", "//", "ssh:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLogin(s)
		if err == nil && (l.Host == "" || strings.HasPrefix(l.Host, "-") || strings.HasPrefix(l.User, "-") || strings.ContainsAny(l.Host+l.User, " \t\n'\"$;&|<>`\\")) {
			t.Fatalf("%q was read as %+v", s, l)
		}
	})
}

package rackfile

import (
	"slices"
	"strings"
	"testing"
)

const devicesFile = `
fabric: {leaves: 2, spines: 1}
devices:
  - {port: eth0.100, name: out, leaf: leaf1, uplink: true}
  - {port: vxlan0}
hosts:
  - {name: "cn[0-1]", role: compute}
faults:
  - {link: out, kind: loss, probability: 10%}
`

func TestDevices(t *testing.T) {
	r, err := Parse([]byte(devicesFile))
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{{Name: "out", Ifname: "eth0.100", Leaf: "leaf1", Uplink: true}, {Name: "vxlan0", Ifname: "vxlan0", Leaf: "leaf0"}}
	if !slices.Equal(r.Devices, want) {
		t.Errorf("%+v, want %+v", r.Devices, want)
	}
	if r.SwitchOf("out") != "leaf1" || r.SwitchOf("vxlan0") != "leaf0" || !slices.Contains(r.LinkNames(), "out") || len(r.OnSwitch("leaf1").Faults) != 1 {
		t.Errorf("%q, %q, %v", r.SwitchOf("out"), r.SwitchOf("vxlan0"), r.LinkNames())
	}
	if got := r.Devices.At("leaf0"); len(got) != 1 || got[0].Name != "vxlan0" {
		t.Errorf("devices of leaf0: %+v", got)
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(data); err != nil || !slices.Equal(again.Devices, want) {
		t.Errorf("decoded: %v", err)
	}
	if _, err := Decode([]byte(strings.Replace(string(data), "eth0.100", "../x", 1))); err == nil || !strings.Contains(err.Error(), "no network device") {
		t.Errorf("a device that no file gives: %v", err)
	}
	one, err := Parse([]byte("devices: [{port: eth1}]\nhosts: [{name: cn0, role: compute}]\n"))
	if err != nil || one.SwitchOf("eth1") != SwitchName || len(one.Devices.At(SwitchName)) != 1 {
		t.Errorf("with one switch: %v", err)
	}
}

func TestDevicesMistakes(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"port: vxlan0", "port: a/b"}:                                        `"a/b" is no name of a network device`,
		{"port: vxlan0", "port: sixteen-bytes-xx"}:                           "is no name of a network device",
		{"port: vxlan0", "port: '..'"}:                                       "is no name of a network device",
		{"port: vxlan0", "name: x"}:                                          `a device lacks the key "port"`,
		{"port: vxlan0", "port: eth0.100, name: more, leaf: leaf1"}:          `device "eth0.100" is a port already`,
		{"port: vxlan0", "port: eth0.200"}:                                   "write one beside it, like name: out",
		{"port: vxlan0", "port: out"}:                                        `port name "out" is taken already`,
		{"port: vxlan0", "port: cn1"}:                                        `port name "cn1" is taken already`,
		{"port: vxlan0", "port: leaf0"}:                                      `port name "leaf0" is taken already`,
		{"port: vxlan0", "port: leaf0-spine0"}:                               `port name "leaf0-spine0" is taken already`,
		{"leaf: leaf1", "leaf: leaf7"}:                                       `"leaf7" is no leaf of this fabric`,
		{"fabric: {leaves: 2, spines: 1}", ""}:                               "leaf needs the key fabric",
		{"uplink: true", "uplink: maybe"}:                                    "neither true nor false",
		{"fabric: {leaves: 2, spines: 1}", "daemons: shared"}:                "and --compact, or `devices`",
		{"fabric: {leaves: 2, spines: 1}", "slow: 100\ncost: connectx5-100"}: "leave out `slow`",
		{"link: out", "link: in"}:                                            `link "in" is no host of this rack`,
	} {
		text := strings.Replace(devicesFile, change[0], change[1], 1)
		if strings.HasPrefix(change[1], "daemons") || strings.HasPrefix(change[1], "slow") {
			text = strings.Replace(text, ", leaf: leaf1", "", 1)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v\nwant %s", change[1], err, want)
		}
	}
	full := "devices:\n  - {port: eth1}\nhosts:\n  - {name: \"cn[0-255]\", role: compute}\nsubnet: 10.0.0.0/16\n"
	if _, err := Parse([]byte(full)); err == nil || !strings.Contains(err.Error(), "switch would have 257 ports") {
		t.Errorf("a port too many: %v", err)
	}
}

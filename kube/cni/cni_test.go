package cni

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/rdmalab/rdmalab/kube/node"
)

// A user's Pod gets the first free compute host, or the one that it names; a host whose network is gone is none.
func TestChoose(t *testing.T) {
	here := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(here, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	host := func(role, netns string) node.Record { return node.Record{Netns: netns, Link: &node.Link{Role: role}} }
	hosts := map[string]node.Record{"cn1": host("compute", here), "cn0": host("compute", here), "gone": host("compute", here+"x"), "ms0": host("memory", here)}
	user := func(names ...string) map[string]node.Record {
		m := map[string]node.Record{}
		for _, n := range names {
			m["of-"+n] = node.Record{Host: n, Netns: here}
		}
		return m
	}
	ended := user("cn0")
	ended["of-cn0"] = node.Record{Host: "cn0", Netns: here + "x"}
	hosts["broken"] = node.Record{Netns: here}
	for _, c := range []struct {
		users map[string]node.Record
		want  string
		got   string
	}{
		{user(), "", "cn0"}, {user("cn0"), "", "cn1"}, {ended, "", "cn0"}, {user("cn0", "cn1"), "", ""}, {user("ms0"), "ms0", "ms0"}, {user(), "gone", ""}, {user(), "cn9", ""},
	} {
		got, err := choose(hosts, c.users, c.want)
		if got != c.got || (c.got == "") != errors.Is(err, errAgain) {
			t.Errorf("%v, %q: %q, %v; want %q", c.users, c.want, got, err, c.got)
		}
	}
}

// What a Pod puts in the place of the file that the plugin writes, a link to a file of the node, stays as it is.
func TestPlug(t *testing.T) {
	for what, link := range map[string]func(from, to string) error{"symbolic": os.Symlink, "hard": os.Link, "none": func(string, string) error { return nil }} {
		dir := t.TempDir()
		victim, name := filepath.Join(t.TempDir(), "victim"), filepath.Join(dir, "plugged")
		if err := errors.Join(os.WriteFile(victim, []byte("of the node"), 0o644), link(victim, name), plug(dir, "c1"), plug(dir, "c2")); err != nil {
			t.Fatal(what, err)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "of the node" {
			t.Errorf("%s link: the file of the node has %q, %v", what, text, err)
		}
		if text, err := os.ReadFile(name); err != nil || string(text) != "c2" {
			t.Errorf("%s link: %q, %v", what, text, err)
		}
	}
}

// Records that cannot be read, or that have no link, keep no Pod from being removed.
func TestRemoveWithBadRecords(t *testing.T) {
	dir := t.TempDir()
	s := state{State: node.State(dir)}
	r := s.Rack("lab", "r0")
	if err := errors.Join(r.Put(node.Hosts, "cn0", node.Record{Container: "c0"}), r.Put(node.Users, "u", node.Record{Container: "c1"}), r.Put(node.Users, "v", node.Record{Container: "c2", Netns: "/proc/self/ns/net"})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "racks", "lab_r0", node.Users, "u.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.remove("none"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hosts/cn0.bad", "users/u.bad", "users/v.json"} {
		if _, err := os.Stat(filepath.Join(dir, "racks", "lab_r0", name)); err != nil {
			t.Error(err)
		}
	}
}

// The folder of a device that has another Pod by now stays when the record of the former one goes.
func TestUnbindOfAnotherPod(t *testing.T) {
	for _, c := range []struct {
		order      []string
		afterFirst bool // the folder of the device is there
	}{{[]string{"old", "new"}, true}, {[]string{"new", "old"}, false}} {
		s := state{State: node.State(t.TempDir())}
		r := s.Rack("lab", "r0")
		for name, netns := range map[string]string{"old": "/run/netns/of-a-pod-that-has-gone", "new": "/proc/self/ns/net"} {
			if err := errors.Join(r.Put(node.Users, name, node.Record{Container: name, Slot: "nic-000", Netns: netns}), os.MkdirAll(s.Slot("nic-000"), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		for k, name := range c.order {
			if err := s.remove(name); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(s.Slot("nic-000")); (err == nil) != (k == 0 && c.afterFirst) {
				t.Errorf("%v, after %s: %v", c.order, name, err)
			}
		}
	}
}

func TestRackOf(t *testing.T) {
	for text, want := range map[string]string{"r0": "ns/r0", "lab/r0": "lab/r0", "": "", "../x": "", "a/b/c": "", "lab/": "", "/r0": "", "lab/R0": ""} {
		ns, name, err := rackOf(text, "ns")
		if got := ns + "/" + name; err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestParseLink(t *testing.T) {
	sound := node.Link{Port: "p-cn0", Ifname: "rack0", MAC: "02:00:00:00:00:01", MTU: 4200, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}
	for what, change := range map[string]func(*node.Link){
		"": func(*node.Link) {}, "port": func(l *node.Link) { l.Port = "../x" }, "the Pod's own": func(l *node.Link) { l.Ifname = "eth0" },
		"long": func(l *node.Link) { l.Port = strings.Repeat("x", 16) }, "MAC": func(l *node.Link) { l.MAC = "ff:ff:ff:ff:ff:ff" }, "address": func(l *node.Link) { l.Addresses = []netip.Prefix{{}} },
	} {
		l := sound
		change(&l)
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseLink(string(text)); (err == nil) != (what == "") || err != nil && !errors.Is(err, errRefused) {
			t.Errorf("%q: %v", what, err)
		}
	}
}

// The interface of a host is behind those of the cluster's own plugins, whose addresses keep their interfaces.
func TestAppendTo(t *testing.T) {
	res := &current.Result{Interfaces: []*current.Interface{{Name: "cni0"}, {Name: "eth0", Sandbox: "/ns"}}, IPs: []*current.IPConfig{{Interface: current.Int(1)}}}
	appendTo(res, nil, "/ns")
	if len(res.Interfaces) != 2 {
		t.Error("a Pod without a link has one")
	}
	appendTo(res, &node.Link{Ifname: "rack0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}, "/ns")
	if len(res.Interfaces) != 3 || res.Interfaces[1].Name != "eth0" || res.Interfaces[2].Name != "rack0" || *res.IPs[0].Interface != 1 || *res.IPs[1].Interface != 2 {
		t.Errorf("%+v", res)
	}
}

// Whatever comes on standard input, in CNI_ARGS and as annotations, the plugin answers with an error of the
// specification, or none; and it writes nothing outside its state.
func FuzzPlugin(f *testing.F) {
	const prev = `"cniVersion":"1.0.0","name":"pod","prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}]}`
	for _, s := range []string{
		`{` + prev + `}`, `{` + prev + `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"rdmalab.io/switch":"../../x"}}}`,
		`{` + prev + `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"rdmalab.io/rack":"a/b","rdmalab.io/link":"{\"port\":\"x\"}"}}}`, `{"prevResult":{}}`, `null`, `[]`, `{`,
	} {
		f.Add([]byte(s), "IgnoreUnknown=1;K8S_POD_NAME=x;K8S_POD_NAMESPACE=a")
	}
	old := os.Stdout
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		f.Fatal(err)
	}
	os.Stdout = null
	f.Cleanup(func() { os.Stdout = old })
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		dir := t.TempDir()
		var m map[string]any
		if json.Unmarshal(stdin, &m) == nil && m != nil {
			m["state"], m["kubelet"] = filepath.Join(dir, "state"), filepath.Join(dir, "none.sock")
			if r, ok := m["runtimeConfig"].(map[string]any); ok {
				delete(r, "x")
			}
			stdin, _ = json.Marshal(m) // what was read can be written
		}
		a := &skel.CmdArgs{ContainerID: "abc", Netns: filepath.Join(dir, "ns"), IfName: "eth0", Args: args, StdinData: stdin}
		for _, verb := range []func(*skel.CmdArgs) error{add, del, check} {
			var e *types.Error
			if err := verb(a); err != nil && !errors.As(err, &e) {
				t.Errorf("%v is no error of the specification", err)
			}
		}
	})
}

package guests

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

func guest(name string, last byte) *Guest {
	g := &Guest{Network: "n", Container: "id-" + name, Ifname: "eth0", Netns: "/x"}
	g.Name, g.Role, g.Port = name, rackfile.Guest, "g-"+name
	g.IPv4, g.IPv6 = netip.AddrFrom4([4]byte{10, 77, 0, last}), netip.MustParseAddr("fd00::1")
	return g
}

func TestFiles(t *testing.T) {
	paths := rackfile.Paths{Dir: t.TempDir()}
	if list, err := List(paths); len(list) != 0 || err != nil {
		t.Errorf("no folder: %v, %v", list, err)
	}
	for _, g := range []*Guest{guest("b", 9), guest("a", 10)} {
		if err := Write(paths, g); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(paths.Guests(), "c.part"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := List(paths)
	if err != nil || len(list) != 2 || !reflect.DeepEqual(list, []Guest{*guest("b", 9), *guest("a", 10)}) {
		t.Errorf("%+v, %v", list, err)
	}
	if !list[0].Of("n", "id-b", "eth0") || list[0].Of("n", "id-b", "eth1") || list[0].Of("m", "id-b", "eth0") || list[0].Of("n", "id-a", "eth0") {
		t.Error("Of")
	}
	r := &rackfile.Rack{Name: "lab"}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths.Spec(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Load(paths); err != nil || strings.Join(r.HostNames(), " ") != "b a" {
		t.Errorf("loaded %+v, %v", r, err)
	}
	for range 2 {
		if err := Remove(paths, "b"); err != nil {
			t.Error(err)
		}
	}
	if list, err := List(paths); len(list) != 1 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	other, err := os.ReadFile(paths.Guest("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{"name":"../x"}`, string(other), ``, `null`, `[]`} {
		if err := os.WriteFile(paths.Guest("bad"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := List(paths); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("a bad file, %q: %v", bad, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","port":"g","ipv4":"10.0.0.1","ipv6":"","mac":"02:00:00:00:00:01","container":"c","ifname":"e"}`))
	f.Add([]byte(`{"name":"a","mac":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := decode(b)
		if err == nil && (rackfile.CheckHostName(g.Name) != nil || g.Container == "" || !g.IPv4.IsValid()) {
			t.Errorf("%+v", g)
		}
	})
}

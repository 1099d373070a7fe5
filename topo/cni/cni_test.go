package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// down returns a plugin on a machine without racks.
func down() *Plugin {
	return &Plugin{open: func(name string) (*rack.Rack, error) { return nil, fmt.Errorf("rack %q: %w", name, rack.ErrNotUp) }}
}

// code returns the code of a plugin's error; 0: none.
func code(t *testing.T, err error) uint {
	t.Helper()
	var e *types.Error
	if err != nil && !errors.As(err, &e) {
		t.Errorf("%v is no error of the specification", err)
	}
	if e == nil {
		return 0
	}
	return e.Code
}

func TestRackIsDown(t *testing.T) {
	p, a := down(), &skel.CmdArgs{ContainerID: "abc", IfName: "eth0", StdinData: []byte(`{"name":"n","cniVersion":"1.1.0"}`)}
	for name, c := range map[string]struct {
		f    func(*skel.CmdArgs) error
		want uint
	}{
		"ADD": {p.Add, types.ErrTryAgainLater}, "DEL": {p.Del, 0}, "GC": {p.GC, 0}, "STATUS": {p.Status, codeNotReady},
		"CHECK": {p.Check, types.ErrInvalidNetworkConfig}, // without prevResult, which CHECK needs
	} {
		if got := code(t, c.f(a)); got != c.want {
			t.Errorf("%s: code %d, want %d", name, got, c.want)
		}
	}
}

func TestRequest(t *testing.T) {
	const stdin = `{"name":"net","runtimeConfig":{"mac":"02:00:00:00:00:01"}}`
	for _, c := range []struct {
		what, args, stdin string
		want              rack.GuestRequest
		code              uint
	}{
		{what: "nothing", stdin: `{"name":"net"}`, want: rack.GuestRequest{Network: "net"}},
		{what: "podman", args: "IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_NAMESPACE=x", stdin: stdin, want: rack.GuestRequest{Network: "net", Suggested: "web", MAC: wire.MAC{2, 0, 0, 0, 0, 1}}},
		{what: "both", args: "HOST=h1;K8S_POD_NAME=web;MAC=02:00:00:00:00:02", stdin: `{"name":"net"}`, want: rack.GuestRequest{Network: "net", Name: "h1", Suggested: "web", MAC: wire.MAC{2, 0, 0, 0, 0, 2}}},
		{what: "unknown key", args: "COLOUR=red", stdin: stdin, code: types.ErrInvalidEnvironmentVariables},
		{what: "no pair", args: "HOST", stdin: stdin, code: types.ErrInvalidEnvironmentVariables},
		{what: "bad name", args: "HOST=../x", stdin: stdin, code: types.ErrInvalidEnvironmentVariables},
		{what: "reserved name", args: "HOST=switch", stdin: stdin, code: types.ErrInvalidEnvironmentVariables},
		{what: "bad MAC", args: "MAC=zz", stdin: `{}`, code: types.ErrInvalidNetworkConfig},
		{what: "a group's MAC", args: "MAC=ff:ff:ff:ff:ff:ff", stdin: `{}`, code: types.ErrInvalidNetworkConfig},
	} {
		conf, err := parseConfig([]byte(c.stdin))
		if err != nil {
			t.Fatal(err)
		}
		got, err := conf.request(&skel.CmdArgs{Args: c.args})
		if code(t, err) != c.code {
			t.Errorf("%s: %v, want code %d", c.what, err, c.code)
		}
		if err == nil && got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestCodes(t *testing.T) {
	for err, want := range map[error]uint{
		rack.ErrBusy: types.ErrTryAgainLater, rack.ErrNoSwitch: types.ErrTryAgainLater, rack.ErrPrivilege: codePrivilege, nl.ErrPrivilege: codePrivilege,
		rack.ErrAttached: codeTaken, rack.ErrGuest: codeState, fs.ErrNotExist: types.ErrUnknownContainer, errors.New("x"): types.ErrInternal,
	} {
		if got := code(t, coded(fmt.Errorf("w: %w", err))); got != want {
			t.Errorf("%v: code %d, want %d", err, got, want)
		}
	}
	if coded(nil) != nil {
		t.Error("no error has a code")
	}
}

func TestResult(t *testing.T) {
	r := &rack.Rack{Spec: &rackfile.Rack{LinkMTU: 4200, Subnet: netip.MustParsePrefix("10.1.0.0/24"), Subnet6: netip.MustParsePrefix("fd00:1::/64")}, Paths: rackfile.PathsOf("x")}
	g := guests.Guest{Ifname: "eth0", Netns: "/ns"}
	g.Port, g.IPv4, g.IPv6, g.MAC = "g-1", netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00:1::9"), wire.MAC{2, 0, 0, 0, 0, 9}
	var out bytes.Buffer
	for _, v := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		out.Reset()
		if err := (&Plugin{Stdout: &out}).print(result(r, &g, wire.MAC{2, 0, 0, 0, 0, 8}), v); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		for _, want := range []string{`"cniVersion": "` + v, "10.1.0.9/24", "fd00:1::9/64", "02:00:00:00:00:09", "02:00:00:00:00:08", rackfile.PathsOf("x").Netns("switch")} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %s in %s", v, want, out.String())
			}
		}
	}
	if err := (&Plugin{Stdout: &out}).print(result(r, &g, wire.MAC{}), "9.9.9"); code(t, err) != types.ErrIncompatibleCNIVersion {
		t.Errorf("a version of the future: %v", err)
	}
}

func TestConfList(t *testing.T) {
	b, err := ConfList("rack", "lab")
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(b)
	if err != nil || list.Name != "rack" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != Program {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range [][2]string{{"", "lab"}, {"a/b", "lab"}, {"rack", "../lab"}, {"rack", ""}} {
		if _, err := ConfList(bad[0], bad[1]); err == nil {
			t.Errorf("%q is a network", bad)
		}
	}
}

// For any standard input and CNI_ARGS, the plugin answers with a result or an error of the
// specification.
func FuzzPlugin(f *testing.F) {
	for _, s := range []string{
		`{"name":"n","rack":"r","cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0","interfaces":[null,{"name":"eth0","sandbox":"/x","mac":"y"}]}}`,
		`{"name":"n","ipam":{"type":"host-local"},"runtimeConfig":{"mac":"02:00:00:00:00:01"}}`,
		`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`, `{"prevResult":{}}`, `null`, `[]`, `{"rack":1}`, `{`,
	} {
		f.Add([]byte(s), "IgnoreUnknown=1;HOST=h1;MAC=02:00:00:00:00:01;K8S_POD_NAME=x")
	}
	p := down()
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		a := &skel.CmdArgs{ContainerID: "abc", Netns: "/x", IfName: "eth0", Args: args, StdinData: stdin}
		for _, verb := range []func(*skel.CmdArgs) error{p.Add, p.Del, p.Check, p.GC, p.Status} {
			err := verb(a)
			code(t, err)
			if b, merr := json.Marshal(err); merr != nil || !json.Valid(b) {
				t.Errorf("%v is not to be printed: %v", err, merr)
			}
		}
	})
}

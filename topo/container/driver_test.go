package container

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

const (
	networkID  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	endpointID = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
)

// newDriver returns the driver of a small rack with a state folder of the test. Its switch has no
// namespace.
func newDriver(t testing.TB) *driver {
	t.Helper()
	p := &plugger{rack: testRack(t, "small"), paths: rackfile.Paths{Dir: t.TempDir()}}
	return &driver{plugger: p, log: slog.New(slog.DiscardHandler)}
}

// ask posts a request and returns the answer, which must be JSON.
func ask(t testing.TB, d *driver, call, body string) (status int, out map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	d.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://plugin"+call, strings.NewReader(body)))
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s %q: the answer is no JSON: %q", call, body, w.Body)
	}
	return w.Code, out
}

func said(out map[string]any) string { s, _ := out["Err"].(string); return s }

// The driver refuses a wrong request with a text that says what is right. It answers requests that
// do not concern it.
func TestDriverRefuses(t *testing.T) {
	d := newDriver(t)
	network := `{"NetworkID":"` + networkID + `","Options":{"com.docker.network.generic":{"rdmalab.host":"cn0"}},"IPv4Data":[{"Pool":"0.0.0.0/0"}]}`
	for _, c := range []struct{ call, body, want string }{
		{"/NetworkDriver.CreateNetwork", `{`, "unexpected end"},
		{"/NetworkDriver.CreateNetwork", `[]`, "cannot unmarshal"},
		{"/NetworkDriver.CreateNetwork", ``, "is no ID"},
		{"/NetworkDriver.CreateNetwork", strings.ReplaceAll(network, networkID, "../../../../etc/passwd"), "is no ID"},
		{"/NetworkDriver.CreateNetwork", strings.ReplaceAll(network, "cn0", "cn9"), "driver_opts: {rdmalab.host: HOST}; hosts of rack small: ms0 cn0 cn1"},
		{"/NetworkDriver.CreateNetwork", strings.ReplaceAll(network, "0.0.0.0/0", "172.17.0.0/16"), `ipam: {driver: "null"}`},
		{"/NetworkDriver.CreateEndpoint", `{"NetworkID":"` + networkID + `","EndpointID":"` + endpointID + `"}`, "is no link of rack small"},
		{"/NetworkDriver.Join", `{"NetworkID":"` + networkID + `"}`, "EndpointID"},
		{"/NetworkDriver.Leave", `{"NetworkID":"` + networkID + `","EndpointID":"rack0"}`, "is no ID"},
		{"/NetworkDriver.DeleteNetwork", `{"NetworkID":"*"}`, "is no ID"},
		{"/NetworkDriver.FlyAway", `{}`, "no such call"},
		{"/", `{}`, "no such call"},
	} {
		if status, out := ask(t, d, c.call, c.body); status < 400 || !strings.Contains(said(out), c.want) {
			t.Errorf("%s %s: %d %v, want %q", c.call, c.body, status, out, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(d.paths.Dir, "cables", networkID)); err == nil {
		t.Error("a refused network is remembered")
	}
	if status, _ := ask(t, d, "/NetworkDriver.CreateNetwork", network); status != http.StatusOK {
		t.Fatalf("a network is refused: %d", status)
	}
	mac := d.rack.Hosts[1].MAC.String()
	endpoint := `{"NetworkID":"` + networkID + `","EndpointID":"` + endpointID + `","Interface":{"MacAddress":"MAC","Address":"ADDR"}}`
	for _, c := range []struct{ mac, addr, want, err string }{
		{"", "", mac, ""},
		{mac, "", "", ""}, // the driver does not repeat an address that the engine gave
		{"02:00:00:00:00:01", "", "", "leave mac_address out"},
		{"x", "", "", "leave mac_address out"},
		{"", "10.0.0.1/8", "", "ipam"},
	} {
		_, out := ask(t, d, "/NetworkDriver.CreateEndpoint", strings.NewReplacer("MAC", c.mac, "ADDR", c.addr).Replace(endpoint))
		i, _ := out["Interface"].(map[string]any)
		got, _ := i["MacAddress"].(string)
		if got != c.want || !strings.Contains(said(out), c.err) || c.err == "" && said(out) != "" {
			t.Errorf("%+v: %v", c, out)
		}
	}
	for range 2 {
		if status, out := ask(t, d, "/NetworkDriver.DeleteNetwork", `{"NetworkID":"`+networkID+`"}`); status != http.StatusOK {
			t.Errorf("delete: %d %v", status, out)
		}
	}
	if status, out := ask(t, d, "/NetworkDriver.Leave", `{"NetworkID":"`+networkID+`","EndpointID":"`+endpointID+`"}`); status != http.StatusOK {
		t.Errorf("leave of a network that is gone: %d %v", status, out)
	}
	for call, want := range map[string]string{"/Plugin.Activate": "NetworkDriver", "/NetworkDriver.GetCapabilities": "local"} {
		if _, out := ask(t, d, call, ""); !strings.Contains(strings.ReplaceAll(toJSON(t, out), " ", ""), want) {
			t.Errorf("%s: %v", call, out)
		}
	}
}

func toJSON(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The driver stops reading a request that is longer than maxRequest.
func TestDriverBoundsRequests(t *testing.T) {
	d := newDriver(t)
	body := `{"NetworkID":"` + strings.Repeat("a", maxRequest) + `"}`
	if status, out := ask(t, d, "/NetworkDriver.CreateNetwork", body); status < 400 || !strings.Contains(said(out), "too large") {
		t.Errorf("%d %v", status, out)
	}
}

// Join makes a link, one end of which the engine moves into the container. Leave removes the link
// of its own endpoint, and no other.
func TestDriverPlugs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root; run the test with sudo")
	}
	d := newDriver(t)
	sw := d.paths.Netns(rackfile.SwitchName)
	if err := os.MkdirAll(filepath.Dir(sw), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := nl.Create(sw); err != nil {
		t.Skipf("network namespaces cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := nl.Remove(sw); err != nil {
			t.Error(err)
		}
	})
	if status, out := ask(t, d, "/NetworkDriver.CreateNetwork", `{"NetworkID":"`+networkID+`","Options":{"com.docker.network.generic":{"rdmalab.host":"cn0"}}}`); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	ids := `{"NetworkID":"` + networkID + `","EndpointID":"` + endpointID + `"}`
	other := `{"NetworkID":"` + networkID + `","EndpointID":"` + networkID + `"}`
	status, out := ask(t, d, "/NetworkDriver.Join", ids)
	name, _ := out["InterfaceName"].(map[string]any)
	src, _ := name["SrcName"].(string)
	if status != http.StatusOK || src == "" || name["DstName"] != rackfile.HostIfname {
		t.Fatalf("%d %v", status, out)
	}
	t.Cleanup(func() {
		if err := nl.DeleteLink("", src); err != nil {
			t.Error(err)
		}
	})
	l, err := nl.LinkByName("", src)
	if err != nil || l.MAC != d.rack.Hosts[1].MAC || l.MTU != d.rack.LinkMTU {
		t.Errorf("the engine's end is %+v, %v", l, err)
	}
	if status, out := ask(t, d, "/NetworkDriver.Join", other); status < 400 || !strings.Contains(said(out), "a link has one container") {
		t.Errorf("a second container: %d %v", status, out)
	}
	for _, leave := range []string{other, ids, ids} {
		if status, out := ask(t, d, "/NetworkDriver.Leave", leave); status != http.StatusOK {
			t.Errorf("leave: %d %v", status, out)
		}
		_, err := nl.LinkByName(sw, "cn0")
		if there := err == nil; there != (leave == other) {
			t.Errorf("after leave %s: %v", leave, err)
		}
	}
	if _, err := nl.LinkByName("", src); err == nil {
		t.Error("the engine's end is left")
	}
}

// Random bytes on the socket end their connection, and the driver goes on.
func TestDriverSocket(t *testing.T) {
	d := newDriver(t)
	path := filepath.Join(t.TempDir(), "d.sock")
	s, err := serveDriver(path, d.plugger, d.log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serveDriver(path, d.plugger, d.log); err == nil {
		t.Error("two drivers serve one socket")
	}
	for _, garbage := range []string{"\x00\xff\xfe\r\n\r\n", "POST / HTTP/9.9\r\n\r\n", strings.Repeat("x", 1<<20), "POST /NetworkDriver.Join HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(garbage)) // the driver may have closed the connection
		_ = c.Close()
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", st, err)
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	resp, err := c.Post("http://d/Plugin.Activate", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// FuzzDriver: for any request the answer is JSON, the driver does not panic, and no file appears
// outside the folder of networks.
func FuzzDriver(f *testing.F) {
	calls := []string{
		"CreateNetwork", "DeleteNetwork", "CreateEndpoint", "DeleteEndpoint", "EndpointOperInfo", "Leave", "AllocateNetwork", "GetCapabilities", "x",
	}
	f.Add(uint8(0), []byte(`{"NetworkID":"`+networkID+`","Options":{"com.docker.network.generic":{"rdmalab.host":"cn0"}}}`))
	f.Add(uint8(0), []byte(`{"NetworkID":"../x","Options":{"com.docker.network.generic":null}}`))
	f.Add(uint8(2), []byte(`{"NetworkID":"`+networkID+`","EndpointID":"`+endpointID+`","Interface":null}`))
	f.Add(uint8(5), []byte(`{"Interface":[]}`))
	f.Fuzz(func(t *testing.T, call uint8, body []byte) {
		d := newDriver(t)
		path := calls[int(call)%len(calls)]
		status, out := ask(t, d, "/NetworkDriver."+path, string(body))
		if (status >= 400) != (said(out) != "") {
			t.Errorf("%s %q: status %d with %v", path, body, status, out)
		}
		entries, err := os.ReadDir(d.paths.Dir)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "cables" {
			t.Errorf("%s %q left %v, %v", path, body, entries, err)
		}
	})
}

// FuzzEvents: events of any form are parsed or ignored.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"Type":"container","Action":"start","Actor":{"ID":"1","Attributes":{"rdmalab.rack":"r","rdmalab.host":"cn0"}},"timeNano":1}`))
	f.Add([]byte(`{"Type":"network","Action":"disconnect","Actor":{"Attributes":{"name":"rdmalab-r-cn0"}}}`))
	f.Add([]byte(`{"Type":"container","Action":"exec_create: x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var ev eventJSON
		if json.NewDecoder(bytes.NewReader(b)).Decode(&ev) != nil {
			return
		}
		if out, ok := ev.of("r"); ok && out.What == "" {
			t.Errorf("%q: %+v", b, out)
		}
	})
}

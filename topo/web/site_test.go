package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of a test.
const patience = 20 * time.Second

// rig is a site of a rack that answers from memory.
type rig struct {
	*Site
	t       *testing.T
	absent  atomic.Bool   // there is no rack
	retrans atomic.Uint64 // of cn0's NIC
	packets []byte        // what the switch's capture returns
}

const token = "the-token"

// newRig makes a site; change may be nil.
func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t}
	cfg := Config{
		Rack: "r", Version: "v1", Token: token, Program: "/nonexistent",
		Read: func(context.Context, string) (*live.Reading, error) {
			if r.absent.Load() {
				return nil, errors.New(`rack "r" is not up`)
			}
			return r.reading(), nil
		},
		Call: func(_ context.Context, node, path string, out any) error {
			switch v := out.(type) {
			case *hostd.Objects:
				v.Name = node
				v.QPs = []hostd.QPObject{{QPStatus: hostd.QPStatus{QPN: 7, Peer: "10.77.0.3", PeerQPN: 8}}}
			case *hostd.Counters:
				if err := json.Unmarshal([]byte(`{"name":"`+node+`","counters":[]}`), v); err != nil {
					return err
				}
			}
			return nil
		},
		Stream: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(string(r.packets))), nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	r.Site = New(cfg)
	t.Cleanup(r.Close)
	return r
}

func (r *rig) reading() *live.Reading {
	some := json.RawMessage("{}")
	return &live.Reading{
		At: time.Now(), Rack: &rackfile.Rack{Name: "r", Hosts: []rackfile.Host{{Name: "ms0", IPv4: addr("10.77.0.3")}}},
		Status: rack.Status{
			Name: "r", State: rack.StateUp,
			Switch: rack.NodeStatus{Name: "switch", Role: "switch", State: rack.StateUp, Daemon: some, Program: "forward"},
			Hosts: []rack.NodeStatus{
				{Name: "cn0", Role: "compute", State: rack.StateUp, Link: rack.LinkUp, Daemon: some, IPv4: addr("10.77.0.2")},
				{Name: "ms0", Role: "memory", State: rack.StateUp, Link: rack.LinkUp, Daemon: some, IPv4: addr("10.77.0.3")},
			},
		},
		Hosts: []hostd.Status{
			{NIC: hostd.NICStatus{State: hostd.StateUp, RetransPkts: r.retrans.Load()}, QPs: []hostd.QPStatus{{State: "RTS"}, {State: "ERR"}}}, {},
		},
	}
}

// ask sends a request with a body, and returns the answer.
func (r *rig) ask(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r.t.Helper()
	q := httptest.NewRequest(method, "http://127.0.0.1:8780"+path, strings.NewReader(body))
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(q)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return w
}

func withToken(q *http.Request) { q.Header.Set("Authorization", "Bearer "+token) }

func header(name, value string) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(q *http.Request) { q.Host = name } }

func TestOtherSitesAreRefused(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Hosts = []string{"lab.example"} })
	for _, c := range []struct {
		why    string
		change func(*http.Request)
		method string
		path   string
		want   int
	}{
		{"an address", host("127.0.0.1:8780"), "GET", "/api/v1/rack", 200},
		{"an IPv6 address", host("[::1]:8780"), "GET", "/api/v1/rack", 200},
		{"localhost", host("LOCALHOST:1"), "GET", "/api/v1/rack", 200},
		{"a name that was allowed", host("Lab.example"), "GET", "/api/v1/rack", 200},
		{"a name that an attacker's DNS points here", host("evil.example"), "GET", "/api/v1/rack", 421},
		{"the same for the page", host("evil.example:8780"), "GET", "/", 421},
		{"the same for metrics", host("evil.example"), "GET", "/metrics", 421},
		{"a name that begins as an address", host("127.0.0.1.evil.example"), "GET", "/api/v1/rack", 421},
		{"no name", host(""), "GET", "/api/v1/rack", 421},
		{"this origin", header("Origin", "http://127.0.0.1:8780"), "GET", "/api/v1/rack", 200},
		{"another origin", header("Origin", "http://evil.example"), "GET", "/api/v1/rack", 403},
		{"another port", header("Origin", "http://127.0.0.1:80"), "GET", "/api/v1/rack", 403},
		{"a file", header("Origin", "null"), "GET", "/api/v1/rack", 403},
		{"another site's request without Origin", header("Sec-Fetch-Site", "cross-site"), "GET", "/api/v1/rack", 403},
		{"another port of this machine", header("Sec-Fetch-Site", "same-site"), "GET", "/api/v1/events", 403},
		{"typed by the user", header("Sec-Fetch-Site", "none"), "GET", "/api/v1/rack", 200},
		{"a link to the page", func(q *http.Request) {
			q.Header.Set("Sec-Fetch-Site", "cross-site")
			q.Header.Set("Sec-Fetch-Mode", "navigate")
		}, "GET", "/", 200},
		{"another site's form, with the token even", func(q *http.Request) { withToken(q); q.Header.Set("Origin", "http://evil.example") }, "DELETE", "/api/v1/faults", 403},
	} {
		w := r.ask(c.method, c.path, "", c.change)
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.why, w.Code, c.want, w.Body)
		}
		if p := w.Header().Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") {
			t.Errorf("%s: policy %q", c.why, p)
		}
	}
}

// changes are the requests that change a rack.
var changes = []struct{ method, path, body string }{
	{"POST", "/api/v1/faults", `{"kind":"loss","amount":"1%","link":"cn0"}`},
	{"DELETE", "/api/v1/faults", ""},
	{"DELETE", "/api/v1/faults/f1", ""},
	{"POST", "/api/v1/nodes/cn0/actions", `{"action":"crash"}`},
	{"POST", "/api/v1/links/cn0", `{"state":"down"}`},
}

func TestOnlyTheTokenChangesTheRack(t *testing.T) {
	var ran atomic.Int64
	program := script(t, `echo x >> "$0.ran"`)
	closed := newRig(t, func(c *Config) { c.Token, c.Program = "", program })
	open := newRig(t, func(c *Config) { c.Program = program })
	for _, c := range changes {
		for _, try := range []struct {
			r      *rig
			change func(*http.Request)
			want   int
		}{
			{closed, func(*http.Request) {}, 403},
			{closed, header("Authorization", "Bearer "), 403}, // an empty token is none
			{open, func(*http.Request) {}, 401},
			{open, header("Authorization", "Bearer wrong"), 401},
			{open, header("Authorization", token), 401},
			{open, header("Cookie", "token="+token), 401},
		} {
			if w := try.r.ask(c.method, c.path+"?token="+token, c.body, try.change); w.Code != try.want {
				t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, w.Code, try.want, w.Body)
			}
		}
		if _, err := os.Stat(program + ".ran"); err == nil {
			t.Fatalf("%s %s: a command has run without the token", c.method, c.path)
		}
	}
	for _, c := range changes {
		if w := open.ask(c.method, c.path, c.body, withToken); w.Code != 200 {
			t.Errorf("%s %s with the token: status %d: %s", c.method, c.path, w.Code, w.Body)
		}
		ran.Add(1)
	}
	b, err := os.ReadFile(program + ".ran")
	if err != nil || strings.Count(string(b), "x") != len(changes) {
		t.Errorf("%q: %d commands have run, want %d (%v)", b, ran.Load(), len(changes), err)
	}
}

// script makes a shell script that is run instead of rdmalab.
func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rdmalab")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRackAndItsRates(t *testing.T) {
	r := newRig(t, nil)
	r.source.MaxAge = 0
	var got Rack
	get := func() {
		t.Helper()
		got = Rack{}
		w := r.ask("GET", "/api/v1/rack", "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
	}
	get()
	if !got.Present || got.Name != "r" || got.State != "up" || got.Version != "v1" || !got.Control || len(got.Nodes) != 3 {
		t.Errorf("%+v", got)
	}
	if n := got.Nodes[0]; n.Name != "cn0" || n.IPv4 != "10.77.0.2" || n.QueuePairs != 2 || n.FailedPairs != 1 || n.ResentRate != 0 {
		t.Errorf("%+v", n)
	}
	r.retrans.Store(1000)
	for end := time.Now().Add(patience); got.Nodes[0].ResentRate == 0 && time.Now().Before(end); {
		if r.retrans.Add(1000); got.Nodes[0].ResentRate == 0 { // more at each reading, so that the rate is seen also if two come in one millisecond
			get()
		}
	}
	if got.Nodes[0].ResentRate == 0 {
		t.Errorf("no rate of a counter that grows: %+v", got.Nodes[0])
	}
	r.retrans.Store(0) // the host was restarted
	if get(); got.Nodes[0].ResentRate != 0 {
		t.Errorf("a rate of %d packets a second of a counter that has begun again", got.Nodes[0].ResentRate)
	}
	r.absent.Store(true)
	if get(); got.Present || !strings.Contains(got.Gone, "not up") || got.Nodes != nil {
		t.Errorf("%+v", got)
	}
	r.absent.Store(false)
	if get(); !got.Present {
		t.Errorf("%+v", got)
	}
	var points []Point
	w := r.ask("GET", "/api/v1/history", "")
	if err := json.Unmarshal(w.Body.Bytes(), &points); err != nil || len(points) < 3 || points[0].Time > points[1].Time {
		t.Errorf("history %s: %v", w.Body, err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := newHub(nil, nil)
	state := Rack{Present: true, Nodes: make([]Node, 200)}
	for i := range state.Nodes {
		state.Nodes[i].Name = string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	for i := range 1000 {
		state.Time = int64(i)
		h.remember(&state)
	}
	if n := len(h.points); n != maxValues/200 || h.points[n-1].Time != 999 {
		t.Errorf("%d points, want %d with the newest", n, maxValues/200)
	}
}

func TestObjectsAndCounters(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		path, want string
		status     int
	}{
		{"/api/v1/nodes/cn0/qps", `"peer":"ms0"`, 200},
		{"/api/v1/nodes/cn0/mrs", `"name":"cn0"`, 200},
		{"/api/v1/nodes/cn0/counters", `"name":"cn0"`, 200},
		{"/api/v1/nodes/switch/counters", `"name":"rewritten"`, 200},
		{"/api/v1/nodes/switch/qps", "no host", 404},
		{"/api/v1/nodes/cn9/qps", "no host", 404},
		{"/api/v1/nodes/..%2f..%2fetc/qps", "no host", 404},
		{"/api/v1/nodes/cn0/faults", "no listing", 404},
		{"/api/v1/ladders/1", "no recording", 404},
		{"/api/v1/nothing", "not found", 404},
	} {
		w := r.ask("GET", c.path, "")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: status %d, %s", c.path, w.Code, w.Body)
		}
	}
	r.absent.Store(true)
	r.source.MaxAge = 0
	if w := r.ask("GET", "/api/v1/nodes/cn0/qps", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "not up") {
		t.Errorf("without a rack: status %d, %s", w.Code, w.Body)
	}
}

func TestDaemonThatDoesNotAnswer(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Call = func(context.Context, string, string, any) error { return errors.New("does not answer") }
	})
	if w := r.ask("GET", "/api/v1/nodes/cn0/qps", ""); w.Code != 502 || !strings.Contains(w.Body.String(), "does not answer") {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
}

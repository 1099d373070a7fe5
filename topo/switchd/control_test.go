package switchd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// served is a switch of two hosts whose control socket is served, in real time.
func served(t *testing.T) (*control.Client, [2]*memcable.Port) {
	t.Helper()
	c, hosts, _ := running(t, Config{Rack: "test", Program: forward.Program{}, Links: []Link{{Host: "h0", Ifname: "p0"}, {Host: "h1", Ifname: "p1"}}})
	return c, hosts
}

// running is a switch with links to two hosts that runs and whose control socket is served, until
// stop or the end of the test.
func running(t *testing.T, cfg Config) (c *control.Client, hosts [2]*memcable.Port, stop func()) {
	t.Helper()
	var ends [2]*memcable.Port
	for i := range hosts {
		hosts[i], ends[i] = memcable.Pair(memcable.Config{})
	}
	cfg.NewWaiter = newWaiter
	cfg.Open = func(i int, _ Link) (packetio.Port, error) { return ends[i], nil }
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	path := filepath.Join(t.TempDir(), "s")
	srv, err := control.Serve(path, d.Mux())
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, srv.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return control.NewClient(path), hosts, stop
}

func TestControl(t *testing.T) {
	c, hosts := served(t)
	call := func(method, path string, in, out any) error { return c.Call(t.Context(), method, path, in, out) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	status := func(err error) int {
		var e *control.Error
		if errors.As(err, &e) {
			return e.Status
		}
		return 0
	}

	var r fault.Rule
	must(call(http.MethodPost, "/faults", fault.Rule{Link: "h0", Kind: fault.Loss, Probability: 0.5}, &r))
	if r.ID != "f1" || r.Dir != fault.Both {
		t.Errorf("installed %+v", r)
	}
	var list []fault.Status
	must(call(http.MethodGet, "/faults", nil, &list))
	if len(list) != 1 || list[0].ID != "f1" || list[0].State != fault.Active {
		t.Errorf("faults %+v", list)
	}
	for want, bad := range map[int]fault.Rule{
		http.StatusBadRequest: {Link: "h0", Kind: "fog"},
		http.StatusNotFound:   {Link: "h7", Kind: fault.Loss},
		http.StatusConflict:   {ID: "f1", Link: "h0", Kind: fault.Loss},
	} {
		if err := call(http.MethodPost, "/faults", bad, nil); status(err) != want {
			t.Errorf("%+v: %v, want status %d", bad, err, want)
		}
	}
	must(call(http.MethodDelete, "/faults/f1", nil, nil))
	if err := call(http.MethodDelete, "/faults/f1", nil, nil); status(err) != http.StatusNotFound {
		t.Errorf("removed twice: %v", err)
	}
	var healed Healed
	must(call(http.MethodPost, "/faults", fault.Rule{Link: "h1", Kind: fault.Duplicate}, nil))
	must(call(http.MethodDelete, "/faults?link=h1", nil, &healed))
	if err := call(http.MethodDelete, "/faults?link=h7", nil, nil); healed.Rules != 1 || status(err) != http.StatusNotFound {
		t.Errorf("healed %+v; %v", healed, err)
	}

	must(call(http.MethodPost, "/partition", Partition{Groups: [][]string{{"h0"}}}, nil))
	if err := call(http.MethodPost, "/partition", Partition{Groups: [][]string{{"h0"}, {"x"}}}, nil); status(err) != http.StatusBadRequest {
		t.Errorf("bad partition: %v", err)
	}
	var s Status
	must(call(http.MethodGet, "/status", nil, &s))
	if s.Rack != "test" || len(s.Ports) != 2 || len(s.Partition) != 1 {
		t.Errorf("status %+v", s)
	}
	must(call(http.MethodDelete, "/partition", nil, nil))

	var b packetio.Batch
	b.Add(0, frame(0, 1))
	if _, err := hosts[0].Send(&b); err != nil {
		t.Fatal(err)
	}
	w := memcable.NewWaiter(hosts[1])
	defer w.Close()
	must(w.Wait(5 * time.Second))
	var counters Counters
	must(call(http.MethodGet, "/counters", nil, &counters))
	if counters.Ports[0].RxPackets != 1 {
		t.Errorf("counters %+v", counters)
	}
	var flows []pipeline.Flow
	must(call(http.MethodGet, "/flows", nil, &flows))
}

func TestControlCapture(t *testing.T) {
	c, hosts := served(t)
	for query, want := range map[string]string{
		"link=h7": "h0", "dir=left": "left", "snaplen=x": "snaplen", "for=soon": "for",
	} {
		if _, err := c.Stream(t.Context(), http.MethodGet, "/capture?"+query, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
	body, err := c.Stream(t.Context(), http.MethodGet, "/capture?link=h0&for=300ms", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var b packetio.Batch
	b.Add(0, frame(0, 1))
	// the stream has begun: its header arrived before this
	if _, err := hosts[0].Send(&b); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(comments(t, strings.NewReader(string(data))), "h0 up:"); n != 1 {
		t.Errorf("%d packets in a capture of %d bytes", n, len(data))
	}
}

// A capture that its client ends by name still has everything that was forwarded before.
func TestCaptureEndsByName(t *testing.T) {
	c, hosts := served(t)
	end := func(name string) error {
		return c.Call(t.Context(), http.MethodPost, "/capture/"+name+"/end", nil, nil)
	}
	if err := end("mine"); err == nil || !strings.Contains(err.Error(), "mine") {
		t.Errorf("the end of no capture: %v", err)
	}
	body, err := c.Stream(t.Context(), http.MethodGet, "/capture?link=h0&name=mine", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := c.Stream(t.Context(), http.MethodGet, "/capture?link=h0&name=mine", nil); err == nil {
		t.Error("two captures have one name")
	}
	const sent = 50
	for range sent {
		var b packetio.Batch
		b.Add(0, frame(0, 1))
		if _, err := hosts[0].Send(&b); err != nil {
			t.Fatal(err)
		}
	}
	for forwarded := uint64(0); forwarded < sent; {
		var counters Counters
		if err := c.Call(t.Context(), http.MethodGet, "/counters", nil, &counters); err != nil {
			t.Fatal(err)
		}
		forwarded = counters.Ports[0].RxPackets
	}
	if err := end("mine"); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(comments(t, strings.NewReader(string(data))), "h0 up:"); n != sent {
		t.Errorf("%d packets in the capture, want %d", n, sent)
	}
}

// When the switch ends, its captures end without an error.
func TestCaptureEndsWithTheSwitch(t *testing.T) {
	var body io.ReadCloser
	t.Run("switch", func(t *testing.T) {
		c, _ := served(t)
		var err error
		if body, err = c.Stream(context.Background(), http.MethodGet, "/capture", nil); err != nil {
			t.Fatal(err)
		}
	})
	defer body.Close()
	if _, err := io.Copy(io.Discard, body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("stream: %v", err)
	}
}

// A trace records the packets of the ports that it names, and of no others. A name that no port has
// is refused: no name at all stands for all ports.
func TestTraceOverControl(t *testing.T) {
	c, hosts := served(t)
	a := caller{t, c}
	a.refused(http.StatusNotFound, "h0, h1", "POST", "/trace", pathtrace.Request{Events: 10, Ports: []string{"h0", "h7"}})
	a.refused(http.StatusBadRequest, "want 1 to", "POST", "/trace", pathtrace.Request{Ports: []string{"h0"}})
	a.must("POST", "/trace", pathtrace.Request{Events: 10, Ports: []string{"h1"}}, nil)
	var b packetio.Batch
	b.Add(0, frame(0, 1))
	if _, err := hosts[0].Send(&b); err != nil {
		t.Fatal(err)
	}
	w := memcable.NewWaiter(hosts[1])
	defer w.Close()
	if err := w.Wait(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	var trace pathtrace.Trace
	a.must("DELETE", "/trace", nil, &trace)
	for _, e := range trace.Events {
		if e.Port != 1 {
			t.Errorf("an event of port %d", e.Port)
		}
	}
	if len(trace.Events) != 2 {
		t.Errorf("events %+v", trace.Events)
	}
}

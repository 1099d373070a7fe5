package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// stream opens a stream of events, and returns a function that waits for the next state.
func stream(t *testing.T, url string) (next func() Rack, closed func()) {
	t.Helper()
	resp, err := http.Get(url + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatalf("status %d, content type %q", resp.StatusCode, ct)
	}
	in := bufio.NewReader(resp.Body)
	return func() (r Rack) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &r); err != nil {
					t.Fatal(err)
				}
				return r
			}
		}
	}, func() { _ = resp.Body.Close() }
}

func TestEventsSayThatTheRackGoesAwayAndComesBack(t *testing.T) {
	r := newRig(t, nil)
	srv := httptest.NewServer(r)
	defer srv.Close()
	next, done := stream(t, srv.URL)
	defer done()
	if s := next(); !s.Present {
		t.Fatalf("%+v", s)
	}
	r.absent.Store(true)
	for next().Present {
	}
	r.absent.Store(false)
	for !next().Present {
	}
}

// The sampler runs while there are readers, which share it.
func TestSamplerEndsWithTheLastReader(t *testing.T) {
	r := newRig(t, nil)
	srv := httptest.NewServer(r)
	defer srv.Close()
	var ends []func()
	for range 3 {
		next, done := stream(t, srv.URL)
		next()
		ends = append(ends, done)
	}
	running := func() bool {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		return r.hub.stop != nil
	}
	if !running() {
		t.Fatal("no sampler runs while three read")
	}
	for _, end := range ends {
		end()
	}
	for end := time.Now().Add(patience); running(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the sampler runs without a reader")
		}
	}
	r.hub.work.Wait()
}

func TestStreamsAreBounded(t *testing.T) {
	h := newHub(nil, nil)
	h.stop = func() {} // no sampler
	for i := range maxStreams {
		if _, _, ok := h.join(); !ok {
			t.Fatalf("reader %d was refused", i)
		}
	}
	w := httptest.NewRecorder()
	h.serveEvents(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d of one reader too many", w.Code)
	}
}

// A reader that does not read gets the newest state, and delays no other reader.
func TestSlowReaderGetsTheNewestState(t *testing.T) {
	h := newHub(nil, nil)
	h.stop = func() {}
	states, leave, _ := h.join()
	for i := range 10 {
		h.send(fmt.Append(nil, i))
	}
	if got := string(<-states); got != "9" {
		t.Errorf("state %s, want the newest", got)
	}
	leave()
}

// serve runs Serve on a port, and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	if host, _, _ := net.SplitHostPort(l.Addr().String()); host != "127.0.0.1" {
		t.Errorf("listens on %s without being told so", host)
	}
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- Serve(ctx, l, h) }()
	t.Cleanup(func() { // the test's context has ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestConnectionsAreBounded(t *testing.T) {
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	get := func(c net.Conn) (string, error) {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return "", err
		}
		return bufio.NewReader(c).ReadString('\n')
	}
	var open []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	}
	for range maxConnections {
		c := dial()
		defer c.Close()
		open = append(open, c)
		if line, err := get(c); err != nil || !strings.Contains(line, "200") { // it is accepted and idle now
			t.Fatalf("%q, %v", line, err)
		}
	}
	late := dial()
	defer late.Close()
	answered := make(chan error, 1)
	go func() { _, err := get(late); answered <- err }()
	select {
	case err := <-answered:
		t.Fatalf("one connection more than %d was served (%v)", maxConnections, err)
	case <-time.After(100 * time.Millisecond): // a server that does not wait would have answered long since
	}
	_ = open[0].Close()
	if err := <-answered; err != nil {
		t.Errorf("the connection that waited was not served: %v", err)
	}
}

func TestHostileRequests(t *testing.T) {
	r := newRig(t, nil)
	at := serve(t, r)
	for name, c := range map[string]struct{ send, want string }{
		"no HTTP":          {"\x16\x03\x01\x00\xa5\x01\r\n\r\n", "400"},
		"a long header":    {"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", "431"},
		"two hosts":        {"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", "400"},
		"an absolute path": {"GET http://evil.example/api/v1/rack HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "421"},
		"a way out":        {"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "307"},
		"an encoded one":   {"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "404"},
		"another method":   {"BREW /api/v1/rack HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "405"},
		"a long body": {fmt.Sprintf("POST /api/v1/ladders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"links\":[\"%s\"]}",
			maxBody*2+14, strings.Repeat("a", maxBody*2)), "413"},
	} {
		c2, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_ = c2.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c2, c.send) // the server may answer and close before all is sent
		line, err := bufio.NewReader(c2).ReadString('\n')
		if err != nil || !strings.Contains(line, " "+c.want) {
			t.Errorf("%s: %q (%v), want status %s", name, line, err, c.want)
		}
		_ = c2.Close()
	}
	if w := r.ask("GET", "/api/v1/rack", ""); w.Code != 200 {
		t.Errorf("status %d afterwards", w.Code)
	}
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	for _, bad := range []string{"", "8780", "127.0.0.1", "127.0.0.1:99999", "[::1"} {
		if l, err := Listen(bad); err == nil {
			t.Errorf("%q: listens on %s", bad, l.Addr())
			_ = l.Close()
		}
	}
}

package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http leaves a refused upload's connection open for half a second, so that the client
	// reads the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

type question struct {
	Name string `json:"name"`
}

type answer struct {
	Text string `json:"text"`
}

// serve starts a server with a few handlers and returns a client for it.
func serve(t *testing.T) (*Client, string) {
	t.Helper()
	var m Mux
	Handle(&m, "POST /hello", func(_ *http.Request, q question) (answer, error) { return answer{"hello " + q.Name}, nil })
	Handle(&m, "GET /fail", func(*http.Request, struct{}) (answer, error) {
		return answer{}, fmt.Errorf("wrapped: %w", Errorf(http.StatusConflict, "no %s today", "bread"))
	})
	Handle(&m, "GET /break", func(*http.Request, struct{}) (answer, error) { return answer{}, errors.New("broken") })
	HandleStream(&m, "POST /count", func(r *http.Request, n int, send func(int) error) error {
		for i := range n {
			if err := send(i); err != nil {
				return err
			}
		}
		if n > 5 {
			return errors.New("too many")
		}
		return nil
	})
	HandleStream(&m, "GET /refused", func(*http.Request, struct{}, func(int) error) error {
		return Errorf(http.StatusNotFound, "nothing to stream")
	})
	HandleStream(&m, "GET /endless", func(r *http.Request, _ struct{}, send func(int) error) error {
		if err := send(0); err != nil {
			return err
		}
		<-r.Context().Done()
		return r.Context().Err()
	})
	path := filepath.Join(t.TempDir(), "sock")
	s, err := Serve(path, &m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return NewClient(path), path
}

func TestCall(t *testing.T) {
	c, path := serve(t)
	var a answer
	if err := c.Call(t.Context(), "POST", "/hello", question{"rack"}, &a); err != nil || a.Text != "hello rack" {
		t.Errorf("Call = %q, %v", a.Text, err)
	}
	if err := c.Call(t.Context(), "POST", "/hello", nil, nil); err != nil {
		t.Errorf("empty body: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
}

func TestErrorsReachTheClient(t *testing.T) {
	c, _ := serve(t)
	for path, want := range map[string]Error{
		"/fail":    {http.StatusConflict, "no bread today"},
		"/break":   {http.StatusInternalServerError, "broken"},
		"/refused": {http.StatusNotFound, "nothing to stream"},
	} {
		err := c.Call(t.Context(), "GET", path, nil, nil)
		var e *Error
		if !errors.As(err, &e) || *e != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	err := c.Call(t.Context(), "GET", "/nowhere", nil, nil)
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusNotFound || e.Message == "" {
		t.Errorf("unknown path: %v", err)
	}
}

func TestBadBodies(t *testing.T) {
	c, _ := serve(t)
	for name, b := range map[string]struct {
		text   string
		status int
	}{
		"unknown field": {`{"name":"x","nom":"y"}`, http.StatusBadRequest},
		"no JSON":       {`name=x`, http.StatusBadRequest},
		"wrong type":    {`{"name":3}`, http.StatusBadRequest},
		"two values":    {`{"name":"x"}{"name":"y"}`, http.StatusBadRequest},
		"cut off":       {`{"name":"x`, http.StatusBadRequest},
		"too long":      {`{"name":"` + strings.Repeat("x", maxBody) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://rdmalab/hello", strings.NewReader(b.text))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != b.status || !strings.Contains(string(text), `"error"`) {
			t.Errorf("%s: %s %s, want status %d", name, resp.Status, text, b.status)
		}
	}
}

func TestSockets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sock")
	if err := NewClient(path).Call(t.Context(), "GET", "/", nil, nil); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	// A daemon that was killed leaves its socket file, which the next one replaces.
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	if err := NewClient(path).Call(t.Context(), "GET", "/", nil, nil); !errors.Is(err, ErrNotRunning) {
		t.Errorf("dead socket: %v", err)
	}
	s, err := Serve(path, new(Mux))
	if err != nil {
		t.Fatalf("dead socket is not replaced: %v", err)
	}
	if _, err := Serve(path, new(Mux)); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("live socket: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := NewClient(path).Call(t.Context(), "GET", "/", nil, nil); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := Serve(filepath.Join(dir, strings.Repeat("x", 120)), new(Mux)); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("long path: %v", err)
	}
	if _, err := Serve(filepath.Join(dir, "missing", "sock"), new(Mux)); err == nil {
		t.Error("served in a folder that is not there")
	}
}

// Calls to a daemon that is stopped end when their context does, and the daemon does not execute
// them later.
func TestDeadlines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stopped")
	l, err := net.Listen("unix", path) // accepts connections, as the kernel does for a stopped process
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = NewClient(path).Call(ctx, "GET", "/status", nil, nil)
	if !errors.Is(err, ErrSilent) || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "http://") {
		t.Errorf("a silent daemon: %v", err)
	}
	c, _ := serve(t)
	if err := c.Call(t.Context(), "GET", PathAlive, nil, nil); err != nil {
		t.Errorf("a daemon that answers: %v", err)
	}
	for name, until := range map[string]time.Duration{"late": -time.Millisecond, "in time": time.Minute} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://rdmalab/hello", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(deadlineHeader, fmt.Sprint(time.Now().Add(until).UnixNano()))
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if want := map[string]int{"late": http.StatusRequestTimeout, "in time": http.StatusOK}[name]; resp.StatusCode != want {
			t.Errorf("a request that is %s: %s, want status %d", name, resp.Status, want)
		}
	}
}

// A process without permission for a socket is told that, and not that no daemon serves the socket.
func TestPrivilege(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	err := NewClient("/x.sock").explain(refused)
	if !errors.Is(err, ErrPrivilege) || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("refused: %v", err)
	}
}

func TestItems(t *testing.T) {
	c, _ := serve(t)
	for n, want := range map[int]string{0: "", 3: "", 7: "too many"} {
		var got []int
		err := Items(t.Context(), c, "POST", "/count", n, func(i int) error { got = append(got, i); return nil })
		if len(got) != n || (err == nil) != (want == "") || (err != nil && err.Error() != want) {
			t.Errorf("count %d: %v, %v", n, got, err)
		}
	}
	enough := errors.New("enough")
	if err := Items(t.Context(), c, "POST", "/count", 5, func(int) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error of each: %v", err)
	}
}

func TestCancelledStream(t *testing.T) {
	c, _ := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := Items(ctx, c, "GET", "/endless", nil, func(int) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled stream: %v", err)
	}
}

func TestServerCloseCutsStreams(t *testing.T) {
	var m Mux
	ended := make(chan struct{})
	HandleStream(&m, "GET /endless", func(r *http.Request, _ struct{}, send func(int) error) error {
		defer close(ended)
		if err := send(0); err != nil {
			return err
		}
		<-r.Context().Done()
		return nil
	})
	path := filepath.Join(t.TempDir(), "sock")
	s, err := Serve(path, &m)
	if err != nil {
		t.Fatal(err)
	}
	err = Items(t.Context(), NewClient(path), "GET", "/endless", nil, func(int) error { go s.Close(); return nil })
	if !errors.Is(err, ErrCutOff) {
		t.Errorf("cut stream: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the handler goes on after Close")
	}
}

func TestConcurrentCalls(t *testing.T) {
	c, _ := serve(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			var a answer
			name := fmt.Sprint(i)
			if err := c.Call(t.Context(), "POST", "/hello", question{name}, &a); err != nil || a.Text != "hello "+name {
				t.Errorf("call %d: %q, %v", i, a.Text, err)
			}
			n := 0
			if err := Items(t.Context(), c, "POST", "/count", 5, func(int) error { n++; return nil }); err != nil || n != 5 {
				t.Errorf("stream %d: %d items, %v", i, n, err)
			}
		})
	}
	wg.Wait()
}

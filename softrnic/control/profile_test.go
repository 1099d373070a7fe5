package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// profiled serves the request for profiles of cn0. A value comes from began when a recording has
// begun, and from ended when its handler has returned.
func profiled(t *testing.T) (c *Client, s *Server, began, ended chan struct{}) {
	t.Helper()
	var inner, m Mux
	HandleProfile(&inner, "cn0")
	began, ended = make(chan struct{}, 8), make(chan struct{}, 8)
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(beginning{w, began}, r)
		ended <- struct{}{}
	})
	path := filepath.Join(t.TempDir(), "sock")
	s, err := Serve(path, &m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewClient(path), s, began, ended
}

// beginning is the answer to a request, which sends a value to began when its header is sent.
type beginning struct {
	http.ResponseWriter
	began chan struct{}
}

// FlushError implements the method that http.ResponseController calls.
func (b beginning) FlushError() error {
	b.began <- struct{}{}
	return http.NewResponseController(b.ResponseWriter).Flush()
}

// records requests the shortest profile. The answer must be one, and come after the requested time.
// What the profile says of its length is shorter if the goroutine that writes it begins late.
func records(t *testing.T, c *Client) {
	t.Helper()
	began := time.Now()
	b, err := c.Profile(t.Context(), MinProfile)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < MinProfile {
		t.Errorf("recorded for %v", took)
	}
	p, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil || p.PeriodType.Type != "cpu" {
		t.Errorf("%v, a profile of %s", err, p.PeriodType.Type)
	}
}

func TestProfile(t *testing.T) {
	c, _, _, _ := profiled(t)
	records(t, c)
	records(t, c)
}

// While a process records a profile, it refuses a second one, and the first one is not disturbed.
func TestSecondProfile(t *testing.T) {
	c, _, _, _ := profiled(t)
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	for range 2 {
		_, err := c.Profile(t.Context(), MaxProfile)
		var e *Error
		if want := "a profile of cn0 is being recorded; wait until it ends"; !errors.As(err, &e) || e.Status != http.StatusConflict || e.Message != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	pprof.StopCPUProfile()
	records(t, c)
}

func TestProfileOfAWrongTime(t *testing.T) {
	c, _, _, _ := profiled(t)
	for _, d := range []time.Duration{-time.Second, 0, MinProfile - 1, MaxProfile + 1} {
		_, err := c.Profile(t.Context(), d)
		var e *Error
		if !errors.As(err, &e) || e.Status != http.StatusBadRequest {
			t.Errorf("for %v: %v", d, err)
		}
	}
	err := c.Call(t.Context(), http.MethodGet, pathProfile, nil, nil)
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusBadRequest {
		t.Errorf("without a time: %v", err)
	}
}

// A client that goes away ends its recording at once, and the daemon can record the next one. Stream
// returns when the recording has begun.
func TestClientOfAProfileGoes(t *testing.T) {
	c, _, _, ended := profiled(t)
	begin := func(ctx context.Context) io.Closer {
		t.Helper()
		body, err := c.Stream(ctx, http.MethodGet, pathProfile+"?for="+MaxProfile.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	ctx, cancel := context.WithCancel(t.Context())
	body := begin(ctx)
	cancel()
	<-ended
	_ = body.Close()
	body = begin(t.Context())
	_ = body.Close() // closes the connection
	<-ended
	records(t, c)
}

// An interrupted Profile returns the error of its context. One whose daemon ends returns an error that
// says so, and not a part of a profile.
func TestProfileIsWholeOrAnError(t *testing.T) {
	c, s, began, ended := profiled(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running := func(ctx context.Context) chan error {
		errs := make(chan error, 1)
		go func() {
			b, err := c.Profile(ctx, MaxProfile)
			if b != nil {
				err = errors.Join(err, errors.New("a profile was returned"))
			}
			errs <- err
		}()
		<-began
		return errs
	}
	errs := running(ctx)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	<-ended
	errs = running(t.Context())
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-errs; !errors.Is(err, ErrCutOff) {
		t.Errorf("the daemon ends: %v", err)
	}
}

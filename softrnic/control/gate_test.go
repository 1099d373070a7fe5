package control

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// A server behind a shut gate answers nothing, and does not carry out later what it was asked with a
// deadline that has passed meanwhile.
func TestGate(t *testing.T) {
	m := &Mux{Gate: new(Gate)}
	calls := make(chan struct{}, 10)
	Handle(m, "POST /call", func(*http.Request, struct{}) (struct{}, error) {
		calls <- struct{}{}
		return struct{}{}, nil
	})
	socket := filepath.Join(t.TempDir(), "s")
	s, err := Serve(socket, m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	call := func(path string, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return NewClient(socket).Call(ctx, "POST", path, nil, nil)
	}
	if err := call("/call", time.Minute); err != nil {
		t.Fatal(err)
	}
	until := make(chan struct{})
	m.Gate.Shut(until)
	if err := call("/call", 50*time.Millisecond); !errors.Is(err, ErrSilent) {
		t.Errorf("behind a shut gate: %v", err)
	}
	late := make(chan error)
	go func() { late <- call("/call", time.Minute) }()
	select {
	case err := <-late:
		t.Errorf("behind a shut gate: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(until)
	if err := <-late; err != nil {
		t.Error(err)
	}
	if n := len(calls); n != 2 {
		t.Errorf("%d calls are carried out, want 2", n)
	}
}

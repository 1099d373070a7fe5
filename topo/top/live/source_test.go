package live

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestCallersShareAReading(t *testing.T) {
	reads := 0 // guarded by the Source's lock
	s := Source{Name: "r", MaxAge: time.Hour, Read: func(context.Context, string) (*Reading, error) {
		reads++
		return &Reading{}, nil
	}}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if g, err := s.Get(t.Context()); g == nil || err != nil {
				t.Errorf("%v, %v", g, err)
			}
		})
	}
	all.Wait()
	if reads != 1 {
		t.Errorf("the rack was read %d times for callers that came together, want once", reads)
	}
	s.MaxAge = 0
	_, _ = s.Get(t.Context())
	if reads != 2 {
		t.Errorf("%d readings, want 2: the first was too old", reads)
	}
}

func TestCallerThatGoesAwaySpoilsNoReading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := Source{MaxAge: time.Hour, Read: func(ctx context.Context, _ string) (*Reading, error) {
		cancel() // the caller goes away in the middle
		return &Reading{}, ctx.Err()
	}}
	if _, err := s.Get(ctx); err != nil {
		t.Errorf("first caller: %v", err)
	}
	if _, err := s.Get(t.Context()); err != nil {
		t.Errorf("second caller: %v", err)
	}
	if _, err := s.Get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone got %v", err)
	}
}

package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/store/client"
	"github.com/rdmalab/rdmalab/store/kv"
)

// deaf is a store whose memory server does not answer: each operation waits for its deadline. It
// calls began first.
type deaf struct {
	*kv.Map
	now   func() clock.Time
	began func()
}

func (d deaf) Get(_ uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	d.began()
	time.Sleep(deadline.Sub(d.now()))
	return dst[:0], kv.ErrTimeout
}

// An operation whose context is cancelled keeps its client for Patience at most, however far the
// context's deadline is. Close waits no longer either.
func TestCancelledOperationEndsByPatience(t *testing.T) {
	now := real.New().Now
	begun := make(chan struct{})
	began := sync.OnceFunc(func() { close(begun) })
	p, err := client.New(client.Config{
		Clients: 1, Now: now, Patience: 100 * time.Millisecond,
		Open: func(clock.Time) (kv.Store, error) { return deaf{kv.NewMap(9), now, began}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	op := p.Start(ctx, client.Op[[]byte]{Key: []byte("k")})
	<-begun
	cancel()
	op.Wait()
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Close waits for the deadline of a cancelled context")
	}
}

// gated makes a pool with one client, which is opened when gate is closed, and a context that ends
// while it is opened.
func gated(t *testing.T, s kv.Store) (p *client.Pool, ended context.Context, gate chan struct{}) {
	t.Helper()
	gate, opened := make(chan struct{}), make(chan struct{})
	p, err := client.New(client.Config{Clients: 1, Open: func(clock.Time) (kv.Store, error) {
		close(opened)
		<-gate
		return s, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	go func() { <-opened; cancel() }()
	return p, ended, gate
}

// MaxValue returns at once when its context ends. What its client still does has no effect on the
// answer.
func TestLateMaxValue(t *testing.T) {
	p, ctx, gate := gated(t, kv.NewMap(9))
	go func() { <-ctx.Done(); close(gate) }()
	if n, err := p.MaxValue(ctx); err == nil || n != 0 {
		t.Errorf("MaxValue: %d, %v", n, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A write whose context ends while its client is opened is not executed.
func TestNoWriteBeginsAfterCancel(t *testing.T) {
	values := kv.NewMap(100)
	p, ctx, gate := gated(t, values)
	if err := p.Numbers().Upsert(ctx, 7, []byte("v")); !errors.Is(err, context.Canceled) {
		t.Errorf("UPSERT: %v", err)
	}
	close(gate)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if v, err := values.Get(7, nil, clock.Never); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("the write was executed: %q, %v", v, err)
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/client"
	"github.com/rdmalab/rdmalab/store/kv"
)

var ctx = context.Background()

// single is a client that fails the test if two threads use it at a time, and can be made to wait or
// to fail.
type single struct {
	*kv.Map
	t    *testing.T
	used atomic.Bool
	wait <-chan struct{} // nil: not
	fail func() error
	open *atomic.Int64 // counts clients that are open
}

func (s *single) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if s.used.Swap(true) {
		s.t.Error("two threads use a client")
	}
	defer s.used.Store(false)
	if s.wait != nil {
		<-s.wait
	}
	if s.fail != nil {
		return nil, s.fail()
	}
	return s.Map.Get(key, dst, deadline)
}

func (s *single) Close() error { s.open.Add(-1); return nil }

// pool makes a pool of clients that change sees when they are opened.
func pool(t *testing.T, cfg client.Config, change func(*single)) (p *client.Pool, open *atomic.Int64) {
	t.Helper()
	values := kv.NewMap(1000)
	open = new(atomic.Int64)
	cfg.Open = func(clock.Time) (kv.Store, error) {
		s := &single{Map: values, t: t, open: open}
		if open.Add(1); change != nil {
			change(s)
		}
		return s, nil
	}
	p, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := open.Load(); n != 0 {
			t.Errorf("%d clients are open after Close", n)
		}
	})
	return p, open
}

// Each goroutine's counter goes up by one, though they share few clients. Their history is
// linearizable.
func TestManyGoroutines(t *testing.T) {
	p, open := pool(t, client.Config{Clients: 3}, nil)
	h, now := kv.NewHistory(), real.New().Now
	h.Guard = new(sync.Mutex)
	var all sync.WaitGroup
	for id := range 16 {
		all.Go(func() {
			s := kv.Record(asStore{p}, h, id, now)
			for n := range 60 {
				key := uint64(n % 5)
				_, _ = s.Get(key, nil, 0)
				_ = s.Insert(key, s.Value(key, 20), 0)
				_ = s.Put(key, s.Value(key, 20), 0)
				if n%7 == 0 {
					_ = s.Delete(key, 0)
				}
			}
			if s.Err() != nil {
				t.Error(s.Err())
			}
		})
	}
	all.Wait()
	if err := h.Check(kv.MostStates); err != nil {
		t.Error(err)
	}
	if n := open.Load(); n < 1 || n > 3 {
		t.Errorf("%d clients are open, want up to 3", n)
	}
}

// asStore is a pool as a client of a store, for checks that know numbers.
type asStore struct{ p *client.Pool }

func name(key uint64) []byte { return fmt.Append(nil, "key ", key) }

func (s asStore) Get(key uint64, _ []byte, _ clock.Time) ([]byte, error) {
	return s.p.Get(ctx, name(key))
}
func (s asStore) Put(key uint64, v []byte, _ clock.Time) error { return s.p.Put(ctx, name(key), v) }
func (s asStore) Insert(key uint64, v []byte, _ clock.Time) error {
	return s.p.Insert(ctx, name(key), v)
}
func (s asStore) Delete(key uint64, _ clock.Time) error { return s.p.Delete(ctx, name(key)) }
func (s asStore) Last() kv.Cost                         { return kv.Cost{} }
func (s asStore) Close() error                          { return nil }

// A cancelled operation returns at once, and its client is used again only when it has ended.
func TestCancel(t *testing.T) {
	gate := make(chan struct{})
	p, _ := pool(t, client.Config{Clients: 1}, func(s *single) { s.wait = gate })
	ctx, cancel := context.WithCancel(ctx)
	op := p.Start(ctx, client.Op[[]byte]{Key: []byte("k")})
	second := p.Start(ctx, client.Op[[]byte]{Kind: client.Delete, Key: []byte("k")}) // one of the two waits for the client
	cancel()
	for _, r := range []client.Result{op.Wait(), second.Wait()} {
		if !errors.Is(r.Err, context.Canceled) || !errors.Is(r.Err, kv.ErrTimeout) {
			t.Errorf("a cancelled operation: %v", r.Err)
		}
	}
	if err := p.Put(ctx, []byte("k"), nil); !errors.Is(err, kv.ErrNoEffect) {
		t.Errorf("an operation that begins with an ended context: %v", err)
	}
	close(gate)
	if _, err := p.Get(context.Background(), []byte("k")); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("after the cancelled operations: %v", err)
	}
}

// The deadline of the store's operation is that of its context, at most Patience away.
func TestDeadline(t *testing.T) {
	now := clock.Time(1000)
	var got clock.Time
	p, err := client.New(client.Config{
		Open: func(deadline clock.Time) (kv.Store, error) { got = deadline; return nil, errors.New("no store") },
		Now:  func() clock.Time { return now }, Patience: time.Second, Join: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(ctx, nil); !errors.Is(err, kv.ErrNoEffect) || got != now.Add(3*time.Second) {
		t.Errorf("deadline %v, %v", got, err)
	}
	far, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if _, _ = p.Get(far, nil); got != now.Add(3*time.Second) {
		t.Errorf("with an hour the deadline is %v", got)
	}
	near, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, _ = p.Get(near, nil); got > now.Add(2*time.Second) {
		t.Errorf("with 2 seconds the deadline is %v", got)
	}
}

// A client that can do nothing any more is replaced; one whose operation has failed is not.
func TestReplaced(t *testing.T) {
	var fail error
	opened := 0
	broken := errors.New("broken")
	p, _ := pool(t, client.Config{Clients: 1, Stale: func(err error) bool { return errors.Is(err, broken) }}, func(s *single) {
		opened++
		s.fail = func() error { return fail }
	})
	for _, c := range []struct {
		err    error
		opened int
	}{{kv.ErrTimeout, 1}, {kv.ErrClosed, 2}, {verbs.ErrClosed, 3}, {broken, 4}} {
		for _, fail = range []error{c.err, kv.ErrTimeout} {
			if _, err := p.Get(ctx, []byte("k")); !errors.Is(err, fail) {
				t.Errorf("a client that fails with %v: %v", fail, err)
			}
		}
		if opened != c.opened {
			t.Errorf("after %v: %d clients were opened, want %d", c.err, opened, c.opened)
		}
	}
}

// After Close every operation fails.
func TestClosed(t *testing.T) {
	p, _ := pool(t, client.Config{}, nil)
	if err := errors.Join(p.Upsert(ctx, []byte("k"), nil), p.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(ctx, []byte("k")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("GET after Close: %v", err)
	}
	for _, n := range []int{-1, 5000} {
		if _, err := client.New(client.Config{Clients: n}); err == nil {
			t.Errorf("a pool of %d clients: no error", n)
		}
	}
}

// A scan goes on behind a batch, ends with the greatest key, and leaves when the loop does.
func TestScan(t *testing.T) {
	p, _ := pool(t, client.Config{}, nil)
	want := 0
	for key := ^uint64(0); key > ^uint64(0)-250; key-- {
		want++
		if err := p.Numbers().Upsert(ctx, key, nil); err != nil {
			t.Fatal(err)
		}
	}
	records, failed := p.Scan(ctx, 0)
	got, last := 0, uint64(0)
	for key := range records {
		if key <= last {
			t.Errorf("key %d comes after %d", key, last)
		}
		got, last = got+1, key
	}
	if got != want || failed() != nil {
		t.Errorf("%d records, %v; want %d", got, failed(), want)
	}
	for range records {
		break
	}
	unordered, err := client.New(client.Config{Open: func(clock.Time) (kv.Store, error) { return struct{ kv.Store }{kv.NewMap(9)}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	records, failed = unordered.Scan(ctx, 0)
	for range records {
		t.Error("a store without scan has records")
	}
	if !errors.Is(failed(), errors.ErrUnsupported) {
		t.Errorf("a store without scan: %v", failed())
	}
}

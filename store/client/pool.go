package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/bytekeys"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Config describes a Pool.
type Config struct {
	// Open opens a client of the store. Several goroutines may call it at a time.
	Open func(deadline clock.Time) (kv.Store, error)
	// Now is the clock for the deadlines of clients; nil means that the Pool has a clock of its
	// own.
	Now func() clock.Time
	// Clients is the greatest number of operations in progress at a time. Each uses a client of its
	// own; 0 means DefaultClients. A client is opened when it is first needed.
	Clients int
	// Patience is the time limit of each operation; its context may end earlier. 0 means
	// store.Patience. Join is the time limit for opening a client; it is Patience if that is longer.
	Patience, Join time.Duration
	// Stale reports whether an error means that the client cannot be used any more; nil means
	// never. A closed client is always replaced.
	Stale func(error) bool
	// Close is called after all clients are closed; nil means that there is no call.
	Close func() error
}

// Limits of a Pool.
const (
	DefaultClients = 4
	mostClients    = 1024
	// maxPending is how many operations of Start may be in progress or wait for a client.
	maxPending = 4096
)

// Pool uses a store through several clients. All goroutines of a program may call its methods.
type Pool struct {
	Keys[[]byte]

	cfg     Config
	tickets chan struct{} // one for each operation in progress
	pending chan struct{} // one for each operation of Start
	ended   chan struct{} // closed by Close

	mu     sync.Mutex // guards idle and closed
	idle   []*member  // sorted by last use, the latest last
	closed bool
}

// member is a client of a pool. At most one operation uses it at a time.
type member struct {
	s     kv.Store         // nil means that the client is not open
	bytes *bytekeys.Client // s with byte strings as keys
}

// New makes a pool. It opens no client yet.
func New(cfg Config) (*Pool, error) {
	cfg.Clients = cmp.Or(cfg.Clients, DefaultClients)
	if cfg.Clients < 1 || cfg.Clients > mostClients {
		return nil, fmt.Errorf("a pool of %d clients: want 1 to %d", cfg.Clients, mostClients)
	}
	if cfg.Now == nil {
		cfg.Now = real.New().Now
	}
	if cfg.Patience <= 0 {
		cfg.Patience = store.Patience
	}
	cfg.Join = max(cfg.Join, cfg.Patience)
	p := &Pool{cfg: cfg, tickets: make(chan struct{}, cfg.Clients), pending: make(chan struct{}, maxPending), ended: make(chan struct{})}
	for range cfg.Clients {
		p.idle = append(p.idle, new(member))
	}
	p.Keys = Keys[[]byte]{p: p, of: func(m *member) operations[[]byte] { return m.bytes }, clone: cloneBytes}
	return p, nil
}

func cloneBytes(b []byte) []byte { return append([]byte(nil), b...) }

// Close waits for the operations in progress, and closes all clients. Further calls do nothing.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.ended)
	p.mu.Unlock()
	for range p.cfg.Clients {
		p.tickets <- struct{}{}
	}
	var errs []error
	for _, m := range p.idle {
		errs = append(errs, m.close())
	}
	if p.cfg.Close != nil {
		errs = append(errs, p.cfg.Close())
	}
	return errors.Join(errs...)
}

// MaxValue returns the length of the store's longest value in bytes, or 0 if its clients do not
// know it.
func (p *Pool) MaxValue(ctx context.Context) (n int, err error) {
	late, err := p.do(ctx, func(m *member, _ clock.Time) error {
		n = m.bytes.MaxEntry()
		return nil
	})
	if late { // the function passed to do may still write n
		return 0, err
	}
	return n, err
}

// take waits for a client that no operation uses, and returns it.
func (p *Pool) take(ctx context.Context) (*member, error) {
	if err := ctx.Err(); err != nil {
		return nil, over(ctx)
	}
	select {
	case <-p.ended:
		return nil, kv.ErrClosed
	default:
	}
	select {
	case p.tickets <- struct{}{}:
	case <-ctx.Done():
		return nil, over(ctx)
	case <-p.ended:
		return nil, kv.ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	m := p.idle[last]
	p.idle = p.idle[:last]
	return m, nil
}

// give returns a client to the pool after an operation. If the operation's error err shows that the
// client cannot be used any more, give closes it.
func (p *Pool) give(m *member, err error) {
	if errors.Is(err, kv.ErrClosed) || errors.Is(err, verbs.ErrClosed) || p.cfg.Stale != nil && p.cfg.Stale(err) {
		_ = m.close() // its connections are gone
	}
	p.mu.Lock()
	p.idle = append(p.idle, m)
	p.mu.Unlock()
	<-p.tickets
}

// over returns the error for an operation whose context has ended.
func over(ctx context.Context) error {
	return fmt.Errorf("%w: %w", kv.ErrTimeout, context.Cause(ctx))
}

// do runs f with a client and returns f's error. If the context ends first, do returns at once,
// late is true, and f goes on. So f must not use memory of the caller that may change later.
func (p *Pool) do(ctx context.Context, f func(m *member, deadline clock.Time) error) (late bool, err error) {
	m, err := p.take(ctx)
	if err != nil {
		return false, errors.Join(err, kv.ErrNoEffect)
	}
	if ctx.Done() == nil {
		err := p.run(ctx, m, f)
		p.give(m, err)
		return false, err
	}
	done := make(chan error, 1)
	go func() {
		err := p.run(ctx, m, f)
		done <- err
		p.give(m, err)
	}()
	select {
	case err := <-done:
		return false, err
	case <-ctx.Done():
		return true, over(ctx)
	}
}

// run opens the client m if necessary, and runs f.
func (p *Pool) run(ctx context.Context, m *member, f func(m *member, deadline clock.Time) error) error {
	if m.s == nil {
		s, err := p.cfg.Open(p.deadline(ctx, p.cfg.Join))
		if err != nil {
			return errors.Join(err, kv.ErrNoEffect)
		}
		m.s, m.bytes = s, bytekeys.New(s, bytekeys.Hash)
	}
	if ctx.Err() != nil { // the context has ended while the client was opened
		return errors.Join(over(ctx), kv.ErrNoEffect)
	}
	err := f(m, p.deadline(ctx, p.cfg.Patience))
	if errors.Is(err, kv.ErrTimeout) && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// deadline returns the deadline of a context by the clients' clock, but at most `patience` from
// now. An operation whose context is cancelled may keep its client until this deadline.
func (p *Pool) deadline(ctx context.Context, patience time.Duration) clock.Time {
	if at, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(at))
	}
	return p.cfg.Now().Add(patience)
}

func (m *member) close() error {
	if m.s == nil {
		return nil
	}
	err := m.s.Close()
	m.s, m.bytes = nil, nil
	return err
}

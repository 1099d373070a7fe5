package client

import (
	"context"
	"errors"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// members opens the clients of a Pool.
type members struct {
	// find makes a Node of the store, makes it find the store, and prepares its clients.
	find func(ctx context.Context) (store.Clients, error)
	// replaced is true for a store that can be made again after it was lost. If the store is lost,
	// Open calls `find` once more, which finds the new store.
	replaced bool

	mu    sync.Mutex
	found []store.Clients // the results of find; the last one is in use
}

// search finds the store and adds its clients to `found`.
func (l *members) search(ctx context.Context) error {
	c, err := l.find(ctx)
	if err == nil {
		l.found = append(l.found, c)
	}
	return err
}

// last returns the clients of the store that was found last, and how many times search has found a
// store.
func (l *members) last() (store.Clients, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.found)
	return l.found[n-1], n
}

// Open opens a client. If the store is lost, and is one that can be made again (replaced), Open
// finds the new store, and opens a client of that.
func (l *members) Open(deadline clock.Time) (kv.Store, error) {
	list, n := l.last()
	c, err := list.Open(deadline)
	if !l.replaced || !errors.Is(err, kv.ErrLost) {
		return c, err
	}
	if again := l.renew(n); again != nil {
		return nil, errors.Join(err, again)
	}
	list, _ = l.last()
	return list.Open(deadline)
}

// renew finds the store again, unless another Open has done so since the method `last` returned n.
func (l *members) renew(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.found) > n {
		return nil
	}
	return l.search(context.Background())
}

// Close frees the resources that the clients share. The caller closes the clients first.
func (l *members) Close() error {
	var errs []error
	for _, c := range l.found {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

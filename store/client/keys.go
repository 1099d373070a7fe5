package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Keys has the operations of a Pool on keys of one kind: byte strings or numbers. The field `of`
// returns the operations of a client on such keys, and `clone` copies a key.
type Keys[K any] struct {
	p     *Pool
	of    func(m *member) operations[K]
	clone func(K) K
}

// operations is what a client does with keys of one kind.
type operations[K any] interface {
	Get(key K, dst []byte, deadline clock.Time) ([]byte, error)
	Put(key K, value []byte, deadline clock.Time) error
	Insert(key K, value []byte, deadline clock.Time) error
	Upsert(key K, value []byte, deadline clock.Time) error
	Delete(key K, deadline clock.Time) error
}

// Kind is a kind of operation.
type Kind uint8

// The kinds of operations.
const (
	Get Kind = iota
	Put
	Insert
	Upsert
	Delete
)

// Op is one operation of Do or Start.
type Op[K any] struct {
	Kind  Kind
	Key   K
	Value []byte // for Put, Insert and Upsert
}

type Result struct {
	Value []byte // for Get
	Err   error
}

// Get returns the value of a key. If the key does not exist, the error is kv.ErrNotFound.
func (k Keys[K]) Get(ctx context.Context, key K) ([]byte, error) {
	r := k.one(ctx, Op[K]{Kind: Get, Key: key})
	return r.Value, r.Err
}

// Put replaces the value of a key. If the key does not exist, the error is kv.ErrNotFound.
func (k Keys[K]) Put(ctx context.Context, key K, value []byte) error {
	return k.one(ctx, Op[K]{Put, key, value}).Err
}

// Insert adds a new key with its value. If the key exists, the error is kv.ErrExists.
func (k Keys[K]) Insert(ctx context.Context, key K, value []byte) error {
	return k.one(ctx, Op[K]{Insert, key, value}).Err
}

// Upsert sets the value of a key, whether the key exists or not. If the store has no UPSERT of its
// own, it tries PUT and INSERT in turn.
func (k Keys[K]) Upsert(ctx context.Context, key K, value []byte) error {
	return k.one(ctx, Op[K]{Upsert, key, value}).Err
}

// Delete removes a key. If the key does not exist, the error is kv.ErrNotFound.
func (k Keys[K]) Delete(ctx context.Context, key K) error {
	return k.one(ctx, Op[K]{Kind: Delete, Key: key}).Err
}

// MultiGet returns the values of several keys. It uses as many clients as the pool has.
func (k Keys[K]) MultiGet(ctx context.Context, keys ...K) []Result {
	ops := make([]Op[K], len(keys))
	for i, key := range keys {
		ops[i] = Op[K]{Kind: Get, Key: key}
	}
	return k.Do(ctx, ops...)
}

// MultiPut replaces the values of several keys. values has one element for each key. The errors are
// in the order of the keys. MultiPut is not a transaction: each PUT succeeds or fails alone.
func (k Keys[K]) MultiPut(ctx context.Context, keys []K, values [][]byte) []error {
	ops, errs := make([]Op[K], len(keys)), make([]error, len(keys))
	for i, key := range keys {
		ops[i] = Op[K]{Put, key, values[i]}
	}
	for i, r := range k.Do(ctx, ops...) {
		errs[i] = r.Err
	}
	return errs
}

// Do executes several operations, in no particular order, with as many clients as the pool has. The
// results are in the order of ops.
func (k Keys[K]) Do(ctx context.Context, ops ...Op[K]) []Result {
	out := make([]Result, len(ops))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(len(ops), k.p.cfg.Clients) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(ops); i = int(next.Add(1)) - 1 {
				out[i] = k.one(ctx, ops[i])
			}
		})
	}
	all.Wait()
	return out
}

// Pending is an operation that Start has started.
type Pending struct {
	done   chan struct{}
	result Result
}

// Done returns a channel that is closed when the operation has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits until the operation has ended, and returns its result.
func (p *Pending) Wait() Result {
	<-p.done
	return p.result
}

// Start starts an operation and does not wait for its end. If maxPending operations are in
// progress, Start first waits until one of them has ended, or ctx has. Operations in progress are
// executed in no particular order. After Start has returned, the caller may change key and value.
func (k Keys[K]) Start(ctx context.Context, op Op[K]) *Pending {
	out := &Pending{done: make(chan struct{})}
	op.Key, op.Value = k.clone(op.Key), cloneBytes(op.Value)
	select {
	case k.p.pending <- struct{}{}:
	case <-ctx.Done():
		out.result.Err = errors.Join(over(ctx), kv.ErrNoEffect)
		close(out.done)
		return out
	}
	go func() {
		out.result = k.one(ctx, op)
		<-k.p.pending
		close(out.done)
	}()
	return out
}

func (k Keys[K]) one(ctx context.Context, op Op[K]) Result {
	if ctx.Done() != nil { // if the context ends, the operation may go on after this call
		op.Key, op.Value = k.clone(op.Key), cloneBytes(op.Value)
	}
	var value []byte
	late, err := k.p.do(ctx, func(m *member, deadline clock.Time) (err error) {
		value, err = op.execute(k.of(m), deadline)
		return err
	})
	if late || err != nil {
		return Result{Err: err}
	}
	return Result{Value: value}
}

func (op *Op[K]) execute(c operations[K], deadline clock.Time) (value []byte, err error) {
	switch op.Kind {
	case Get:
		value, err = c.Get(op.Key, nil, deadline)
	case Put:
		err = c.Put(op.Key, op.Value, deadline)
	case Insert:
		err = c.Insert(op.Key, op.Value, deadline)
	case Upsert:
		err = c.Upsert(op.Key, op.Value, deadline)
	case Delete:
		err = c.Delete(op.Key, deadline)
	default:
		err = errors.Join(fmt.Errorf("operation of kind %d: want Get, Put, Insert, Upsert or Delete", op.Kind), kv.ErrNoEffect)
	}
	return value, err
}

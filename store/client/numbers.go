package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Numbers returns the operations on the store's own keys, which are numbers. Values have no header.
func (p *Pool) Numbers() Keys[uint64] {
	return Keys[uint64]{p: p, of: func(m *member) operations[uint64] { return numbers{m.s} }, clone: func(n uint64) uint64 { return n }}
}

// numbers is a client with an UPSERT.
type numbers struct{ kv.Store }

// Upsert implements operations.
func (n numbers) Upsert(key uint64, value []byte, deadline clock.Time) error {
	if u, ok := n.Store.(store.Upserter); ok {
		return u.Upsert(key, value, deadline)
	}
	_, err := kv.PutOrInsert(
		func() error { return n.Put(key, value, deadline) },
		func() error { return n.Insert(key, value, deadline) },
	)
	return err
}

// batch is how many records a scan reads by one operation of the store.
const batch = 100

// Scan returns the records whose keys are numbers of at least from, in ascending order. It reads them
// in batches as the loop goes on; each is an operation of its own, so a change that is made meanwhile
// may be seen or not. A value may be kept. failed returns the error that has ended the loop; nil: the
// loop has seen all records, or has left. A store that keeps its keys in no order has no scan: the
// error is errors.ErrUnsupported.
//
//	records, failed := s.Scan(ctx, 100)
//	for key, value := range records { … }
//	if err := failed(); err != nil { … }
func (p *Pool) Scan(ctx context.Context, from uint64) (records iter.Seq2[uint64, []byte], failed func() error) {
	var err error
	return func(yield func(uint64, []byte) bool) {
		for from, more := from, true; more; {
			var list []record
			if list, err = p.scan(ctx, from); err != nil {
				return
			}
			for _, r := range list {
				if !yield(r.key, r.value) {
					return
				}
				from, more = r.key+1, r.key+1 != 0
			}
			more = more && len(list) == batch
		}
	}, func() error { return err }
}

type record struct {
	key   uint64
	value []byte
}

// scan reads a batch.
func (p *Pool) scan(ctx context.Context, from uint64) ([]record, error) {
	var list []record
	late, err := p.do(ctx, func(m *member, deadline clock.Time) error {
		s, ok := m.s.(kv.Scanner)
		if !ok {
			return fmt.Errorf("the store keeps its keys in no order: scan: %w", errors.ErrUnsupported)
		}
		return s.Scan(from, batch, func(key uint64, value []byte) bool {
			list = append(list, record{key, cloneBytes(value)})
			return true
		}, deadline)
	})
	if late || err != nil {
		return nil, err
	}
	return list, nil
}

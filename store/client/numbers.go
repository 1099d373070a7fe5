package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Numbers returns the operations on the store's own keys, which are numbers. Their values have no
// header.
func (p *Pool) Numbers() Keys[uint64] {
	return Keys[uint64]{p: p, of: func(m *member) operations[uint64] { return numbers{m.s} }, clone: func(n uint64) uint64 { return n }}
}

// numbers adds Upsert to a client of a store. If the store has no UPSERT, Upsert tries PUT and
// INSERT.
type numbers struct{ kv.Store }

func (n numbers) Upsert(key uint64, value []byte, deadline clock.Time) error {
	if u, ok := n.Store.(kv.Upserter); ok {
		return u.Upsert(key, value, deadline)
	}
	_, err := kv.PutOrInsert(
		func() error { return n.Put(key, value, deadline) },
		func() error { return n.Insert(key, value, deadline) },
	)
	return err
}

// batch is how many records Scan reads by one operation of the store.
const batch = 100

// Scan returns the records whose keys are not below `from`, in ascending order. The keys are
// numbers. Scan reads the records in batches while the loop runs. Each batch is an operation of its
// own, so Scan may or may not return changes that are made meanwhile. The caller may keep the
// values. failed returns the error that has ended the loop, or nil if the loop has seen all records
// or was left early. If a store does not keep its keys in order, the error is
// errors.ErrUnsupported.
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

// scan reads one batch of records, beginning with the smallest key that is not below `from`.
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

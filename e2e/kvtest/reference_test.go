package kvtest

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// reference is a store in a map, with which the checks of stores are tested.
type reference struct {
	values  map[uint64][]byte
	largest int
}

var _ kv.Store = (*reference)(nil)

// newReference makes an empty store that takes values of up to largest bytes.
func newReference(largest int) *reference {
	return &reference{values: make(map[uint64][]byte), largest: largest}
}

// Get reads a value.
func (r *reference) Get(key uint64, dst []byte, _ clock.Time) ([]byte, error) {
	v, ok := r.values[key]
	if !ok {
		return dst[:0], kv.ErrNotFound
	}
	return append(dst[:0], v...), nil
}

// Put replaces a value.
func (r *reference) Put(key uint64, value []byte, _ clock.Time) error {
	if len(value) > r.largest {
		return kv.ErrTooLarge
	}
	if _, ok := r.values[key]; !ok {
		return kv.ErrNotFound
	}
	r.values[key] = slices.Clone(value)
	return nil
}

// Insert adds a key.
func (r *reference) Insert(key uint64, value []byte, _ clock.Time) error {
	if len(value) > r.largest {
		return kv.ErrTooLarge
	}
	if _, ok := r.values[key]; ok {
		return kv.ErrExists
	}
	r.values[key] = slices.Clone(value)
	return nil
}

// Delete removes a key.
func (r *reference) Delete(key uint64, _ clock.Time) error {
	if _, ok := r.values[key]; !ok {
		return kv.ErrNotFound
	}
	delete(r.values, key)
	return nil
}

// Last returns zero costs, because no network is used.
func (r *reference) Last() kv.Cost { return kv.Cost{} }

// Close does nothing.
func (r *reference) Close() error { return nil }

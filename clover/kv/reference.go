package kv

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Reference is a store in a map: what the checks of stores are checked with.
type Reference struct {
	values  map[uint64][]byte
	largest int
}

var _ Store = (*Reference)(nil)

// NewReference makes an empty store that takes values of up to largest bytes.
func NewReference(largest int) *Reference {
	return &Reference{values: make(map[uint64][]byte), largest: largest}
}

// Get reads a value.
func (r *Reference) Get(key uint64, dst []byte, _ clock.Time) ([]byte, error) {
	v, ok := r.values[key]
	if !ok {
		return dst[:0], ErrNotFound
	}
	return append(dst[:0], v...), nil
}

// Put replaces a value.
func (r *Reference) Put(key uint64, value []byte, _ clock.Time) error {
	if len(value) > r.largest {
		return ErrTooLarge
	}
	if _, ok := r.values[key]; !ok {
		return ErrNotFound
	}
	r.values[key] = slices.Clone(value)
	return nil
}

// Insert makes a key.
func (r *Reference) Insert(key uint64, value []byte, _ clock.Time) error {
	if len(value) > r.largest {
		return ErrTooLarge
	}
	if _, ok := r.values[key]; ok {
		return ErrExists
	}
	r.values[key] = slices.Clone(value)
	return nil
}

// Delete takes a key away.
func (r *Reference) Delete(key uint64, _ clock.Time) error {
	if _, ok := r.values[key]; !ok {
		return ErrNotFound
	}
	delete(r.values, key)
	return nil
}

// Last is nothing: no network is used.
func (r *Reference) Last() Cost { return Cost{} }

// Close does nothing.
func (r *Reference) Close() error { return nil }

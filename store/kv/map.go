package kv

import (
	"fmt"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Map is a store in the memory of a process. Tests use it in place of a remote store, to test
// programs that use a store and the code that checks histories. Several threads may use it at the
// same time.
type Map struct {
	mu      sync.Mutex
	values  map[uint64][]byte
	largest int
}

var _ Scanner = (*Map)(nil)

// NewMap makes an empty store with values of up to largest bytes.
func NewMap(largest int) *Map { return &Map{values: make(map[uint64][]byte), largest: largest} }

// MaxValue returns the length of the longest value in bytes.
func (m *Map) MaxValue() int { return m.largest }

func (m *Map) Get(key uint64, dst []byte, _ clock.Time) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if !ok {
		return dst[:0], ErrNotFound
	}
	return append(dst[:0], v...), nil
}

func (m *Map) Put(key uint64, value []byte, _ clock.Time) error {
	return m.set(key, value, func(exists bool) error {
		if !exists {
			return ErrNotFound
		}
		return nil
	})
}

func (m *Map) Insert(key uint64, value []byte, _ clock.Time) error {
	return m.set(key, value, func(exists bool) error {
		if exists {
			return ErrExists
		}
		return nil
	})
}

// Upsert sets the value of a key, whether the key exists or not.
func (m *Map) Upsert(key uint64, value []byte, _ clock.Time) error {
	return m.set(key, value, func(bool) error { return nil })
}

// set sets the value of a key, unless refuse returns an error.
func (m *Map) set(key uint64, value []byte, refuse func(exists bool) error) error {
	if len(value) > m.largest {
		return fmt.Errorf("%w: %d bytes, the map takes %d", ErrTooLarge, len(value), m.largest)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, exists := m.values[key]
	if err := refuse(exists); err != nil {
		return err
	}
	m.values[key] = slices.Clone(value)
	return nil
}

func (m *Map) Delete(key uint64, _ clock.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.values[key]; !ok {
		return ErrNotFound
	}
	delete(m.values, key)
	return nil
}

// Scan implements Scanner. f must not use the map.
func (m *Map) Scan(from uint64, n int, f func(key uint64, value []byte) bool, _ clock.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []uint64
	for key := range m.values {
		if key >= from {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys[:min(len(keys), max(n, 0))] {
		if !f(key, m.values[key]) {
			break
		}
	}
	return nil
}

// Last returns zero costs, because no network is used.
func (m *Map) Last() Cost { return Cost{} }

func (m *Map) Close() error { return nil }

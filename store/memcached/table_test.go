package memcached_test

import (
	"fmt"
	"sync"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached"
)

// table is a Table in a map, with room for few keys.
type table struct {
	mu      sync.Mutex // guards the fields below
	values  map[uint64]value
	version uint64
	broken  error // what all methods return, if it is not nil
}

type value struct {
	bytes   string
	version uint64
}

const (
	tableKeys  = 20
	tableValue = 200
)

func newTable() *table { return &table{values: make(map[uint64]value)} }

func (t *table) Read(key uint64, dst []byte) ([]byte, uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[key]
	if t.broken == nil && !ok {
		return nil, 0, kv.ErrNotFound
	}
	return append(dst[:0], v.bytes...), v.version, t.broken
}

func (t *table) Update(key uint64, change func([]byte, uint64) ([]byte, memcached.Change)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return t.broken
	}
	var old []byte
	v, ok := t.values[key]
	if ok {
		old = append([]byte{}, v.bytes...)
	}
	next, do := change(old, v.version)
	switch {
	case do == memcached.Remove:
		delete(t.values, key)
	case do == memcached.Keep:
	case len(next) > tableValue:
		return fmt.Errorf("%w: %d bytes", kv.ErrTooLarge, len(next))
	case !ok && len(t.values) == tableKeys:
		return kv.ErrFull
	default:
		t.version++
		t.values[key] = value{string(next), t.version}
	}
	return nil
}

func (t *table) Sweep(f func(uint64, []byte) bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, v := range t.values {
		if f(key, []byte(v.bytes)) {
			delete(t.values, key)
		}
	}
	return t.broken
}

func (t *table) Keys() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.values)
}

func (t *table) MaxKeys() int  { return tableKeys }
func (t *table) MaxValue() int { return tableValue }

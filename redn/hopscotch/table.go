package hopscotch

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/redn"
)

var (
	ErrKey      = errors.New("hopscotch: a key has 1 to 48 bits and is not 0")
	ErrValue    = errors.New("hopscotch: the value has another length than those of the table")
	ErrExists   = errors.New("hopscotch: the key exists")
	ErrNotFound = errors.New("hopscotch: the key does not exist")
	ErrFull     = errors.New("hopscotch: the table has no room for the key")
)

// Memory is the registered memory of a table. WriteAt copies a bucket as one: a NIC reads its old or
// its new content. A verbs.MR is a Memory.
type Memory interface {
	WriteAt(p []byte, off int) error
	ReadAt(p []byte, off int) error
}

// entry is the server's view of a bucket: its key, 0 if it is empty, and the place of the value.
type entry struct {
	key   redn.Operand
	value uint32
}

// Table is the server's view of a table. Only its owner changes it; clients and the NIC read it.
type Table struct {
	// Wait returns when all lookups have ended that began before it was called. An insertion calls it
	// after an entry was copied to a bucket that lookups probe earlier, and before another one takes
	// its old bucket. If Wait is nil, entries hop only to buckets that lookups probe later, and the
	// table fills less.
	Wait func()

	shape   Shape
	m       Memory
	at      redn.Mem // where m is for the NIC
	buckets []entry
	free    []uint32 // places of values
	left    []uint32 // places that lookups may still read
	keys    int
	hops    uint64
	bytes   [32]byte
	path    []hop // of the last insertion
	may     []int // buckets of a key
	seen    map[int]struct{}
}

// New returns an empty table in memory m, of at least shape.Size bytes, all 0. at says where a NIC
// finds it: its Addr and LKey.
func New(shape Shape, m Memory, at redn.Mem) (*Table, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	t := &Table{shape: shape, m: m, at: at, buckets: make([]entry, shape.Len), seen: map[int]struct{}{}}
	for i := shape.values() - 1; i >= 0; i-- {
		t.free = append(t.free, uint32(i))
	}
	return t, nil
}

// Keys returns the number of keys.
func (t *Table) Keys() int { return t.keys }

// Load returns the share of buckets that have a key.
func (t *Table) Load() float64 { return float64(t.keys) / float64(t.shape.Len) }

// Hops returns how often an entry moved to make room for another one.
func (t *Table) Hops() uint64 { return t.hops }

// Find returns the bucket that has a key, which of the key's buckets it is (0 is the first), and the
// place of its value. ok is false if the table has no such key.
func (t *Table) Find(key redn.Operand) (bucket, nth, value int, ok bool) {
	t.may = t.shape.Buckets(t.may[:0], key)
	for i, b := range t.may {
		if t.buckets[b].key == key {
			return b, i, int(t.buckets[b].value), true
		}
	}
	return 0, 0, 0, false
}

// Get appends the value of a key to b.
func (t *Table) Get(b []byte, key redn.Operand) ([]byte, error) {
	_, _, place, ok := t.Find(key)
	if !ok || key == 0 {
		return b, ErrNotFound
	}
	n := len(b)
	b = append(b, make([]byte, t.shape.Value)...)
	return b, t.m.ReadAt(b[n:], t.shape.ValueAt(place))
}

// Insert adds a key. It returns ErrFull if there is no place for the value, or if no entry can make
// room; then the table is as before.
func (t *Table) Insert(key redn.Operand, value []byte) error {
	if err := t.check(key, value); err != nil {
		return err
	}
	if _, _, _, ok := t.Find(key); ok {
		return ErrExists
	}
	if len(t.free) == 0 {
		return fmt.Errorf("%w: no place for its value", ErrFull)
	}
	b, err := t.room(key)
	if err != nil {
		return err
	}
	place, err := t.place(value)
	if err != nil {
		return err
	}
	if err := t.set(b, entry{key, place}); err != nil {
		return err
	}
	t.keys++
	return nil
}

// Put gives a key another value. It needs a free place for it.
func (t *Table) Put(key redn.Operand, value []byte) error {
	if err := t.check(key, value); err != nil {
		return err
	}
	b, _, former, ok := t.Find(key)
	switch {
	case !ok:
		return ErrNotFound
	case len(t.free) == 0:
		return fmt.Errorf("%w: no place for its value", ErrFull)
	}
	place, err := t.place(value)
	if err != nil {
		return err
	}
	if err := t.set(b, entry{key, place}); err != nil {
		return err
	}
	t.left = append(t.left, uint32(former))
	return nil
}

// Delete removes a key.
func (t *Table) Delete(key redn.Operand) error {
	b, _, place, ok := t.Find(key)
	if !ok || key == 0 {
		return ErrNotFound
	}
	if err := t.set(b, entry{}); err != nil {
		return err
	}
	t.left = append(t.left, uint32(place))
	t.keys--
	return nil
}

// Reclaim makes the places of values that Put and Delete have left free. The caller knows that all
// lookups have ended that began before the last of these calls.
func (t *Table) Reclaim() {
	t.free = append(t.free, t.left...)
	t.left = t.left[:0]
}

func (t *Table) check(key redn.Operand, value []byte) error {
	switch {
	case key == 0 || key>>48 != 0:
		return ErrKey
	case len(value) != t.shape.Value:
		return ErrValue
	}
	return nil
}

// place writes a value to a free place.
func (t *Table) place(value []byte) (uint32, error) {
	last := len(t.free) - 1
	p := t.free[last]
	if err := t.m.WriteAt(value, t.shape.ValueAt(int(p))); err != nil {
		return 0, err
	}
	t.free = t.free[:last]
	return p, nil
}

// set writes a bucket.
func (t *Table) set(n int, e entry) error {
	addr := t.at.Addr + uint64(t.shape.ValueAt(int(e.value)))
	b := t.bytes[:0]
	switch {
	case e.key == 0:
		b = t.bytes[:t.shape.BucketLen()]
		clear(b)
	case t.shape.Form == Slots:
		b = redn.AppendSlot(b, e.key, redn.Hit, redn.Mem{Addr: addr, LKey: t.at.LKey, Len: t.shape.Value})
	default:
		b = redn.AppendBucket(b, e.key, addr)
	}
	if err := t.m.WriteAt(b, n*t.shape.BucketLen()); err != nil {
		return err
	}
	t.buckets[n] = e
	return nil
}

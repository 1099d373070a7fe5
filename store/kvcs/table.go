package kvcs

import (
	"errors"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Memory is the memory of a table. In a server, clients READ the memory while the server writes it.
type Memory interface {
	Load(b []byte, at int)
	Store(b []byte, at int)
}

// Bytes is Memory that no client reads.
type Bytes []byte

func (m Bytes) Load(b []byte, at int) { copy(b, m[at:]) }

func (m Bytes) Store(b []byte, at int) { copy(m[at:], b) }

// op is a kind of change that a client asks for.
type op uint8

const (
	opPut op = iota + 1
	opInsert
	opUpsert
	opDelete
)

// step is a kind of record: the first step of a change (stepSet or stepRemove), or the second one
// (stepCommit).
type step uint8

const (
	stepSet step = iota + 1
	stepRemove
	stepCommit
)

// record is an entry of the coordinator's log. Tables that execute the same records in the same
// order are alike, except for the cells that the values are in.
type record struct {
	step  step
	key   uint64
	value []byte
}

// entry is the state of a key in a table.
type entry struct {
	at  int // number of the slot
	now slot
	// changing is true if a change of the key is in progress. next is the content of the slot when
	// the change takes effect.
	next     slot
	changing bool
}

// table executes records in a Memory.
type table struct {
	shape Shape
	mem   Memory
	keys  map[uint64]*entry
	taken []bool   // slots in use
	cells []uint32 // free cells; the one that was freed first is used first
	buf   []byte
}

// newTable makes an empty table. The memory must be zero.
func newTable(s Shape, m Memory) *table {
	t := &table{shape: s, mem: m, keys: make(map[uint64]*entry), taken: make([]bool, s.slots())}
	for i := range s.Cells {
		t.cells = append(t.cells, uint32(i))
	}
	return t
}

// loadTable makes a table from the contents of a memory, in which no change is in progress.
func loadTable(s Shape, m Memory) (*table, error) {
	t := &table{shape: s, mem: m, keys: make(map[uint64]*entry), taken: make([]bool, s.slots())}
	used := make([]bool, s.Cells)
	var b [slotLen]byte
	for i := range t.taken {
		var x slot
		m.Load(b[:], i*slotLen)
		switch ok := x.parse(b[:]); {
		case !ok || x.state == pending || x.state == live && (int(x.cell) >= s.Cells || used[x.cell]):
			return nil, errors.New("the memory is not a table")
		case x.state == live:
			t.keys[x.key] = &entry{at: i, now: x}
			t.taken[i], used[x.cell] = true, true
		}
	}
	for i, u := range used {
		if !u {
			t.cells = append(t.cells, uint32(i))
		}
	}
	return t, nil
}

// check returns the error of a change with a value of n bytes; nil if it can be executed. The key
// must have no change in progress.
func (t *table) check(o op, key uint64, n int) error {
	e := t.keys[key]
	switch {
	case o != opDelete && n > t.shape.Value:
		return kv.ErrTooLarge
	case e == nil && (o == opPut || o == opDelete):
		return kv.ErrNotFound
	case e != nil && o == opInsert:
		return kv.ErrExists
	case o == opDelete:
		return nil
	case len(t.cells) == 0 || e == nil && t.slotFor(key) < 0:
		return kv.ErrFull
	}
	return nil
}

// slotFor returns a free slot in the window of a key; -1 if there is none.
func (t *table) slotFor(key uint64) int {
	first := t.shape.window(key)
	for i := first; i < first+windowSlots; i++ {
		if !t.taken[i] {
			return i
		}
	}
	return -1
}

// execute executes a record, which check has allowed. version is the record's position.
func (t *table) execute(version uint64, r *record) error {
	e := t.keys[r.key]
	switch {
	case r.step == stepCommit && e != nil && e.changing:
		t.commit(e)
	case r.step == stepRemove && e != nil && !e.changing:
		e.next, e.changing = slot{}, true
		t.mark(e, e.now)
	case r.step == stepSet && (e == nil || !e.changing) && len(t.cells) > 0 && len(r.value) <= t.shape.Value:
		return t.set(version, r, e)
	default:
		return errors.New("a record that does not fit the table")
	}
	return nil
}

func (t *table) set(version uint64, r *record, e *entry) error {
	if e == nil {
		at := t.slotFor(r.key)
		if at < 0 {
			return errors.New("a record for which the table has no slot")
		}
		e = &entry{at: at}
		t.keys[r.key], t.taken[at] = e, true
	}
	cell := t.cells[0]
	t.cells = t.cells[1:]
	t.buf = appendCell(t.buf[:0], r.key, version, r.value)
	t.mem.Store(t.buf, t.shape.cellAt(cell))
	e.next, e.changing = slot{key: r.key, version: version, cell: cell, length: uint32(len(r.value)), state: live}, true
	shown := e.now
	if shown.state == free {
		shown = e.next
	}
	t.mark(e, shown)
	return nil
}

// mark writes shown, with the state pending, into the slot of entry e.
func (t *table) mark(e *entry, shown slot) {
	shown.state = pending
	t.write(e.at, &shown)
}

func (t *table) commit(e *entry) {
	t.write(e.at, &e.next)
	if e.now.state == live {
		t.cells = append(t.cells, e.now.cell)
	}
	if e.next.state == free {
		t.taken[e.at] = false
		delete(t.keys, e.now.key)
	}
	e.now, e.changing = e.next, false
}

func (t *table) write(at int, s *slot) {
	var b [slotLen]byte
	s.encode(&b)
	t.mem.Store(b[:], at*slotLen)
}

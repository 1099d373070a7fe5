package nictable

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/store/kv"
)

// table is the server process's view of a cuckoo hash table that is in registered memory (see
// Estate). Only this process changes the table; clients and the NIC's programs read it.
type table struct {
	e       *Estate
	slots   []slot
	free    []int  // numbers of free items
	version uint32 // of the item that was written last
	moves   uint64 // number of moves of keys between their slots
	line    [line]byte
	item    []byte // the item as it is written
	got     []byte // the item as it was read
}

// take reads the table of an estate. If an earlier process ended during a move, a key is in two
// slots: take empties one of them, which ends the move.
func (e *Estate) take() (*table, error) {
	t := &table{e: e, slots: make([]slot, e.shape.Slots)}
	var word [wordLen]byte
	if err := e.mr.ReadAt(word[:], 0); err != nil {
		return nil, err
	}
	t.moves = binary.LittleEndian.Uint64(word[:])
	used := make([]bool, e.shape.Items+1)
	for n := range t.slots {
		if err := e.mr.ReadAt(t.line[:redn.SlotLen], e.shape.slotAt(n)); err != nil {
			return nil, err
		}
		s := parseSlot(t.line[:])
		if s.print == 0 {
			continue
		}
		i := e.shape.itemOf(int(s.at - e.mr.Addr()))
		if used[i] {
			if err := t.leave(n); err != nil {
				return nil, err
			}
			continue
		}
		used[i], t.slots[n] = true, s
	}
	for i, u := range used {
		if !u {
			t.free = append(t.free, i)
		}
		// all items are read: an item that no slot names may have the newest version
		if err := e.mr.ReadAt(t.line[:itemHead], e.shape.itemAt(i)); err != nil {
			return nil, err
		}
		t.version = max(t.version, binary.LittleEndian.Uint32(t.line[8:]))
	}
	return t, nil
}

func (t *table) keys() int { return t.e.shape.Items + 1 - len(t.free) }

// find returns the slot that has a fingerprint, or -1.
func (t *table) find(f redn.Operand) int {
	for _, n := range t.e.shape.slotsOf(f) {
		if t.slots[n].print == f {
			return n
		}
	}
	return -1
}

// has returns the slot that has a key, or -1. other is true if a slot has another key with the same
// fingerprint.
func (t *table) has(key uint64) (n int, other bool, err error) {
	if n = t.find(fingerprint(key)); n < 0 {
		return -1, false, nil
	}
	if err := t.e.mr.ReadAt(t.line[:wordLen], int(t.slots[n].at-t.e.mr.Addr())); err != nil {
		return -1, false, err
	}
	if binary.LittleEndian.Uint64(t.line[:]) != key {
		return -1, true, nil
	}
	return n, false, nil
}

// set writes a slot. A program of the NIC reads the slot's old content or its new content, never a
// part of each.
func (t *table) set(n int, s slot) error {
	value := t.e.table()
	value.Addr, value.Len = s.at, s.length
	b := redn.AppendSlot(t.line[:0], s.print, s.version, value)
	if err := t.e.mr.WriteAt(b, t.e.shape.slotAt(n)); err != nil {
		return err
	}
	t.slots[n] = s
	return nil
}

func (t *table) remove(n int) error { return t.set(n, slot{}) }

// write writes an item to a place that no slot names yet, and returns the content of the slot that
// is to name it.
func (t *table) write(key uint64, value []byte) (slot, error) {
	if t.version++; t.version == redn.Miss { // an answer with the version Miss would say that there is no item
		t.version++
	}
	t.item = seal(t.item[:0], key, t.version, value)
	at := t.e.shape.itemAt(t.free[len(t.free)-1])
	return slot{fingerprint(key), t.version, len(t.item), t.e.mr.Addr() + uint64(at)}, t.e.mr.WriteAt(t.item, at)
}

func (t *table) put(key uint64, value []byte) error {
	n, _, err := t.has(key)
	switch {
	case err != nil:
		return err
	case n < 0:
		return kv.ErrNotFound
	}
	before := t.slots[n]
	s, err := t.write(key, value)
	if err != nil {
		return err
	}
	if err := t.set(n, s); err != nil {
		return err
	}
	t.free[len(t.free)-1] = t.itemOf(before)
	return nil
}

func (t *table) itemOf(s slot) int { return t.e.shape.itemOf(int(s.at - t.e.mr.Addr())) }

func (t *table) insert(key uint64, value []byte) error {
	n, other, err := t.has(key)
	switch {
	case err != nil:
		return err
	case n >= 0:
		return kv.ErrExists
	case other:
		return fmt.Errorf("%w: another key has the fingerprint of this one", kv.ErrFull)
	case len(t.free) < 2: // the last free item is for PUTs
		return kv.ErrFull
	}
	n, err = t.room(fingerprint(key))
	if err != nil {
		return err
	}
	s, err := t.write(key, value)
	if err != nil {
		return err
	}
	if err := t.set(n, s); err != nil {
		return err
	}
	t.free = t.free[:len(t.free)-1]
	return nil
}

func (t *table) delete(key uint64) error {
	n, _, err := t.has(key)
	switch {
	case err != nil:
		return err
	case n < 0:
		return kv.ErrNotFound
	}
	return t.empty(n)
}

// empty removes the key in a slot, and frees its item.
func (t *table) empty(n int) error {
	s := t.slots[n]
	if err := t.remove(n); err != nil {
		return err
	}
	t.free = append(t.free, t.itemOf(s))
	return nil
}

// get returns the value of a key, which is valid until the next call and not nil, and its version.
func (t *table) get(key uint64) (value []byte, version uint64, err error) {
	n, _, err := t.has(key)
	switch {
	case err != nil:
		return nil, 0, err
	case n < 0:
		return nil, 0, kv.ErrNotFound
	}
	_, value, err = t.read(n)
	return value, uint64(t.slots[n].version), err
}

// read returns the key and the value of the item that slot n names. The value is valid until the
// next call.
func (t *table) read(n int) (key uint64, value []byte, err error) {
	s := t.slots[n]
	t.got = slices.Grow(t.got[:0], s.length)[:s.length]
	if err := t.e.mr.ReadAt(t.got, int(s.at-t.e.mr.Addr())); err != nil {
		return 0, nil, err
	}
	key, value, ok := unseal(t.got, s.version)
	if !ok {
		return 0, nil, fmt.Errorf("%w: the item of slot %d is damaged", errServer, n)
	}
	return key, value, nil
}

// maxMoves is how many keys one INSERT moves, at most.
const maxMoves = 256

// room returns an empty slot, one of the two slots of a fingerprint. If neither is empty, room
// empties one by moving keys to their other slots.
func (t *table) room(f redn.Operand) (int, error) {
	for _, n := range t.e.shape.slotsOf(f) {
		if t.slots[n].print == 0 {
			return n, nil
		}
	}
	for _, n := range t.e.shape.slotsOf(f) {
		path := t.path(n)
		for i := len(path) - 2; i >= 0; i-- {
			if err := t.move(path[i], path[i+1]); err != nil {
				return 0, err
			}
		}
		if path != nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: no slot is free after %d moves", kv.ErrFull, maxMoves)
}

// path returns a list of slots that begins with slot n. The key in each of them can move to the
// next slot of the list, and the last slot is empty. It returns nil if there is no such list, for
// example because two keys have the same two slots.
func (t *table) path(n int) []int {
	path := []int{n}
	for at := n; t.slots[at].print != 0; path = append(path, at) {
		if len(path) > maxMoves {
			return nil
		}
		both := t.e.shape.slotsOf(t.slots[at].print)
		at = both[0] + both[1] - at
	}
	return path
}

// move moves a key to an empty slot. For a moment the key is in both slots.
func (t *table) move(from, to int) error {
	if err := t.set(to, t.slots[from]); err != nil {
		return err
	}
	return t.leave(from)
}

// leave ends a move: it empties the slot from which a key has moved. Before that it raises the
// number of moves: a client that looked into the key's other slot before the move sees by this
// number that it must look again.
func (t *table) leave(n int) error {
	t.moves++
	if err := t.e.mr.WriteAt(binary.LittleEndian.AppendUint64(nil, t.moves), 0); err != nil {
		return err
	}
	return t.remove(n)
}

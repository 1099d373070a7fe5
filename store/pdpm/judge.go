package pdpm

import (
	"encoding/binary"
	"fmt"
)

// judge checks the memory of the servers when no request is in flight. An entry has a copy in place
// and a redo copy, which a client writes first. If the lock of an entry is free, the copy in place
// must be whole, and a redo copy that is whole must have the same tag: otherwise a client has left
// a change that it did not write in place. If the lock is held, at least one of the two copies must
// be whole.
func judge(memory [][]byte, _ bool) error {
	for i, m := range memory {
		super, err := direct.Parse(m, len(m))
		if err != nil {
			return fmt.Errorf("memory server %d: %w", i, err)
		}
		s := shapeOf(super.Numbers)
		for n := range uint64(s.Entries) {
			key := binary.LittleEndian.Uint64(m[s.keyAt(n):]) - 1
			b := m[s.entryAt(n):]
			place, redo := b[lockLen:lockLen+s.copyLen()], b[lockLen+s.copyLen():lockLen+2*s.copyLen()]
			_, whole := valueOf(place, key)
			_, ready := valueOf(redo, key)
			switch held := lockOf(b) != 0; {
			case !whole && (!held || !ready):
				return fmt.Errorf("memory server %d: key %d: the copy in place is torn (locked: %v, redo copy whole: %v)", i, key, held, ready)
			case !held && ready && tagOf(place) != tagOf(redo):
				return fmt.Errorf("memory server %d: key %d: a change was left in the redo copy", i, key)
			}
		}
	}
	return nil
}

// judgeCentral checks the memory of the servers. No key may have two entries. At least one of the
// copies of an entry must be whole or unwritten, and the two must not have the same version unless
// neither was written.
func judgeCentral(memory [][]byte, _ bool) error {
	for i, m := range memory {
		super, err := central.Parse(m, len(m))
		if err != nil {
			return fmt.Errorf("memory server %d: %w", i, err)
		}
		s := shapeOf(super.Numbers)
		seen := map[uint64]bool{}
		for n := range uint64(s.Entries) {
			key := binary.LittleEndian.Uint64(m[s.keyAt(n):]) - 1
			if key+1 == 0 {
				continue
			}
			if seen[key] {
				return fmt.Errorf("memory server %d: key %d has two entries", i, key)
			}
			seen[key] = true
			b := m[s.entryAt(n)+lockLen:]
			one, other := b[:s.copyLen()], b[s.copyLen():2*s.copyLen()]
			_, first := valueOf(one, key)
			_, second := valueOf(other, key)
			if !first && !second || tagOf(one) != 0 && tagOf(one) == tagOf(other) {
				return fmt.Errorf("memory server %d: key %d: copies with the versions %d and %d, whole: %v, %v", i, key, tagOf(one), tagOf(other), first, second)
			}
		}
	}
	return nil
}

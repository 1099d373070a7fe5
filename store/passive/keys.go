package passive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Keys is a hash table of keys: Slots slots of SlotLen bytes from address At of each server's
// memory on. A slot begins with its key plus 1, or with 0 while it has no key. The other bytes are
// the store's. A slot belongs for ever to the first key that claims it.
//
// At and SlotLen are multiples of 8, because a slot is claimed by an atomic on its first word.
type Keys struct {
	At      uint64
	SlotLen int // length of a slot in bytes, 8 to 256
	Slots   int // slots on each server, 1 or more
}

// Validate returns an error, which wraps kv.ErrNoEffect, if no table can have these fields.
func (k Keys) Validate() error {
	if k.At%8 != 0 || k.SlotLen%8 != 0 || k.SlotLen < 8 || k.SlotLen > window || k.Slots < 1 {
		return fmt.Errorf("%w: %d slots of %d bytes from address %d on: want at least one, of 8 to %d bytes; length and address are multiples of 8",
			kv.ErrNoEffect, k.Slots, k.SlotLen, k.At, window)
	}
	return nil
}

// Find looks for a key in up to maxProbe slots, and reads up to window bytes of slots at a time.
const (
	maxProbe = 256
	window   = 256
)

// ErrKey says that no slot can have the key.
var ErrKey = errors.New("the key 2^64-1 cannot be inserted")

// PlaceOf returns the server that has a key, and a number that chooses the key's first slot there.
func PlaceOf(key uint64, servers int) (server int, slot uint64) {
	h := (key ^ key>>32) * 0x9e3779b97f4a7c15
	h = ((h ^ h>>29) * 0xbf58476d1ce4e5b9) >> 16
	return int(h % uint64(servers)), h / uint64(servers)
}

// Find returns the server and the number of the slot of a key. It copies the bytes of the slot that
// follow the key into `rest`. If k is not valid, the error is that of Validate. If the key has no
// slot and claim is true, Find claims a slot for it, by CAS. If claim is false, the error is
// kv.ErrNotFound.
//
// A key's slots are tried in one order, and a key takes the first one that is free. So all clients
// find a key in the same slot, and a free slot ends the search.
func (c *Conn) Find(k Keys, key uint64, claim bool, rest []byte, deadline clock.Time) (server int, slot uint64, err error) {
	if err := k.Validate(); err != nil {
		return 0, 0, err
	}
	server, first := PlaceOf(key, c.Servers())
	slots, size := uint64(k.Slots), uint64(k.SlotLen)
	most := min(maxProbe, slots)
	for i, n := uint64(0), uint64(0); i < most && key+1 != 0; i += n {
		slot = (first + i) % slots
		n = min(window/size, slots-slot, most-i)
		var list [window]byte
		if err := c.Read(server, k.At+slot*size, list[:n*size], deadline); err != nil {
			return server, slot, err
		}
		for b := list[:n*size]; len(b) > 0; slot, b = slot+1, b[size:] {
			owner := binary.LittleEndian.Uint64(b)
			if owner == 0 && claim {
				// It does not matter whether the CAS of this client or of another has set the key:
				// the slot has one key now, for ever. Another client may have changed the slot's
				// other bytes since the READ.
				if owner, _, err = c.Swap(server, k.At+slot*size, 0, key+1, deadline); err != nil {
					return server, slot, err
				}
				if owner == 0 {
					owner = key + 1
				}
			}
			switch owner {
			case 0:
				return server, slot, kv.ErrNotFound
			case key + 1:
				copy(rest, b[8:])
				return server, slot, nil
			}
		}
	}
	switch {
	case !claim:
		return server, slot, kv.ErrNotFound
	case key+1 == 0:
		return server, slot, ErrKey
	}
	return server, slot, fmt.Errorf("%w: %d slots from the place of key %d on have other keys", kv.ErrFull, most, key)
}

package fusee

import (
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
)

// cache remembers at which offsets the slots of keys are, and their values. Each key has one place
// in the cache, which it shares with other keys. threshold is Config.Threshold.
type cache struct {
	places    []remembered
	threshold float64
}

// remembered is one place of the cache: what a client remembers of a key.
type remembered struct {
	key uint64
	// at is the offset of the key's slot. slot is the value that the slot had; 0 means that the
	// client remembers nothing.
	at   uint64
	slot layout.Slot
	// uses counts the operations that have used the entry. wrong counts those of them that found
	// another value in the slot.
	uses, wrong float64
}

func (c *cache) place(key uint64, h layout.Hash) *remembered {
	if len(c.places) == 0 {
		return nil
	}
	return &c.places[(uint64(h.Prefix())^key)%uint64(len(c.places))]
}

// get returns what the client remembers of a key, or nil.
func (c *cache) get(key uint64, h layout.Hash) *remembered {
	if r := c.place(key, h); r != nil && r.key == key && r.slot != 0 {
		return r
	}
	return nil
}

// trusts reports whether a GET should read the object in the same round trip as the slot, because
// what the client remembers was seldom wrong.
func (c *cache) trusts(r *remembered) bool { return r != nil && r.wrong <= c.threshold*r.uses }

// used records that an operation has used the entry. right is true if the slot still had the
// remembered value.
func (r *remembered) used(right bool) {
	if r.uses++; !right {
		r.wrong++
	}
}

// in reports whether the slot still has the remembered value. list has the slots that may name the
// key, as they were read just now.
func (r *remembered) in(list []entry) bool {
	return slices.ContainsFunc(list, func(e entry) bool { return e.at == r.at && e.slot == r.slot })
}

func (c *cache) put(key uint64, h layout.Hash, at uint64, slot layout.Slot) {
	switch r := c.place(key, h); {
	case r == nil:
	case r.key == key:
		r.at, r.slot = at, slot
	default:
		*r = remembered{key: key, at: at, slot: slot}
	}
}

func (c *cache) drop(key uint64, h layout.Hash) {
	if r := c.get(key, h); r != nil {
		r.slot = 0
	}
}

// Learn copies what another client of the same store remembers of all keys, as if this client had
// read them. Both clients must have caches of the same size.
func (c *Client) Learn(from *Client) { copy(c.index.cache.places, from.index.cache.places) }

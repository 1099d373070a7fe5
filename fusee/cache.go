package fusee

import "github.com/rdmalab/rdmalab/fusee/layout"

// cache remembers where keys are. Each key has one place in it, which other keys share.
type cache struct {
	places    []remembered
	threshold float64
}

// remembered is what a client remembers of a key.
type remembered struct {
	key uint64
	// at is the offset of its slot, slot the value that the slot had; 0: nothing is remembered.
	at   uint64
	slot layout.Slot
	// uses counts the operations that have used it, wrong those that have found another value.
	uses, wrong float64
}

func (c *cache) place(key uint64, h layout.Hash) *remembered {
	if len(c.places) == 0 {
		return nil
	}
	return &c.places[(uint64(h.Prefix())^key)%uint64(len(c.places))]
}

// get returns what is remembered of a key; nil: nothing.
func (c *cache) get(key uint64, h layout.Hash) *remembered {
	if r := c.place(key, h); r != nil && r.key == key && r.slot != 0 {
		return r
	}
	return nil
}

// trusts reports whether the object is to be read before the slot was.
func (c *cache) trusts(r *remembered) bool { return r != nil && r.wrong <= c.threshold*r.uses }

// used notes whether the slot of a key had the remembered value.
func (r *remembered) used(right bool) {
	if r.uses++; !right {
		r.wrong++
	}
}

// put remembers the slot of a key.
func (c *cache) put(key uint64, h layout.Hash, at uint64, slot layout.Slot) {
	switch r := c.place(key, h); {
	case r == nil:
	case r.key == key:
		r.at, r.slot = at, slot
	default:
		*r = remembered{key: key, at: at, slot: slot}
	}
}

// drop forgets the slot of a key.
func (c *cache) drop(key uint64, h layout.Hash) {
	if r := c.get(key, h); r != nil {
		r.slot = 0
	}
}

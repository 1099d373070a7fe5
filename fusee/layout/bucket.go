package layout

import (
	"encoding/binary"
	"errors"
)

// A bucket is 64 bytes. Each part has its offset, its name and its length:
//
//	0 local depth 1 | 1 moving 1 | 2 zero 2 | 4 prefix 4 | 8 slots, 7 of 8 bytes
//
// A combined bucket is two buckets, one after the other.
const (
	BucketLen   = 64
	CombinedLen = 2 * BucketLen
	BucketSlots = 7
	// CombinedSlots is the number of slots of a combined bucket.
	CombinedSlots = 2 * BucketSlots
	bucketHeader  = 8
	groupBuckets  = 3
)

// ErrBucket means that the bytes do not have the form of a bucket.
var ErrBucket = errors.New("no bucket of the index")

// Header is the header of a bucket. It says to which subtable the bucket belongs. The word of a
// header never returns to an earlier value: Depth grows by one and Moving becomes true, and later
// Moving becomes false.
type Header struct {
	// Depth is the local depth of the subtable. Prefix has the lowest Depth bits of the prefixes of
	// the subtable's keys, which are the same for all of them.
	Depth  int
	Prefix uint32
	// Moving is true while the subtable is being split and the bucket may still have keys that no
	// longer belong to the subtable. Clients insert none of these keys there.
	Moving bool
}

// Had reports whether keys with hash k belong to the subtable, or did before the split that is in
// progress.
func (h Header) Had(k Hash) bool {
	if h.Moving {
		h.Depth--
	}
	return (k.Prefix()^h.Prefix)&mask(h.Depth) == 0
}

// mask returns a number whose lowest depth bits are set.
func mask(depth int) uint32 { return uint32(1)<<depth - 1 }

// movingBit is the bit of a header's word that is set if Moving is true.
const movingBit = 1 << 8

func (h Header) Word() uint64 {
	w := uint64(byte(h.Depth)) | uint64(h.Prefix)<<32
	if h.Moving {
		w |= movingBit
	}
	return w
}

func (h Header) Put(b []byte) { binary.LittleEndian.PutUint64(b, h.Word()) }

func (h *Header) Parse(b []byte) error {
	w := binary.LittleEndian.Uint64(b)
	*h = Header{Depth: int(min(uint32(byte(w)), MaxDepth+1)), Prefix: uint32(w >> 32), Moving: w&movingBit != 0}
	if h.Depth > MaxDepth || h.Moving && h.Depth == 0 || h.Word() != w || h.Prefix&^mask(h.Depth) != 0 {
		return ErrBucket
	}
	return nil
}

// Remain reports whether a key with hash k must have stayed in its bucket while the bucket's header
// was changed from h to now: no split in between moves the key.
func (h Header) Remain(now Header, k Hash) bool {
	depth := h.Depth
	if h.Moving {
		depth--
	}
	for ; depth < now.Depth; depth++ {
		if k.Moves(depth) {
			return false
		}
	}
	return now.Prefix == h.Prefix
}

// Combined is a combined bucket in local memory.
type Combined struct {
	// Heads are the headers of the two buckets. They may differ while the subtable is being split.
	Heads [2]Header
	// Main is the index, 0 or 1, of the main bucket. The other index is that of the overflow
	// bucket.
	Main  int
	Slots [CombinedSlots]Slot
}

// Parse parses a combined bucket. main is the index of its main bucket in the subtable.
func (c *Combined) Parse(main int, b []byte) error {
	if len(b) != CombinedLen {
		return ErrBucket
	}
	for i := range c.Heads {
		if err := c.Heads[i].Parse(b[i*BucketLen:]); err != nil {
			return err
		}
	}
	c.Main = main % 2
	for i := range c.Slots {
		c.Slots[i] = Slot(binary.LittleEndian.Uint64(b[slotAt(i):]))
	}
	return nil
}

// slotAt returns the offset of slot i in a combined bucket.
func slotAt(i int) int {
	return i/BucketSlots*BucketLen + bucketHeader + i%BucketSlots*8
}

// GroupSlot returns the offset of slot i in a group of buckets.
func GroupSlot(i int) int { return slotAt(i) }

// Order returns the index of the n-th slot that an INSERT tries in a combined bucket. Slots of the
// main bucket come before those of the overflow bucket, which another main bucket shares.
func (c *Combined) Order(n int) int { return (n + c.Main*BucketSlots) % CombinedSlots }

package layout

import (
	"encoding/binary"
	"errors"
)

// A bucket is 64 bytes:
//
//	0 local depth 1 | 1 moving 1 | 2 0 2 | 4 prefix 4 | 8 slots, 7 of 8 bytes
//
// A combined bucket is two buckets, one after the other.
const (
	BucketLen   = 64
	CombinedLen = 2 * BucketLen
	// BucketSlots is the number of slots of a bucket.
	BucketSlots = 7
	// CombinedSlots is the number of slots of a combined bucket.
	CombinedSlots = 2 * BucketSlots
	bucketHeader  = 8
	groupBuckets  = 3
)

// ErrBucket means that the bytes are no combined bucket of a subtable.
var ErrBucket = errors.New("no bucket of the index")

// Header is the header of a bucket. It says to which subtable the bucket belongs. Its word only ever
// changes to one that it did not have before: Depth grows by one, with Moving, and then Moving ends.
type Header struct {
	// Depth is the local depth of the subtable. Prefix holds the lowest Depth bits of the prefixes
	// of its keys, which are the same for all of them.
	Depth  int
	Prefix uint32
	// Moving: the subtable is being split, and keys that are not the subtable's any more may still be
	// in the bucket. No such key is inserted there any more.
	Moving bool
}

// Has reports whether the keys of a hash are in the subtable.
func (h Header) Has(k Hash) bool { return (k.Prefix()^h.Prefix)&mask(h.Depth) == 0 }

// Had reports whether the keys of a hash are in the subtable, or are those that a split moves from it.
func (h Header) Had(k Hash) bool {
	if h.Moving {
		h.Depth--
	}
	return (k.Prefix()^h.Prefix)&mask(h.Depth) == 0
}

// mask has the lowest depth bits set.
func mask(depth int) uint32 { return uint32(1)<<depth - 1 }

// movingBit marks a header with Moving.
const movingBit = 1 << 8

// Word is the word of the header.
func (h Header) Word() uint64 {
	w := uint64(byte(h.Depth)) | uint64(h.Prefix)<<32
	if h.Moving {
		w |= movingBit
	}
	return w
}

// Put writes the header to b.
func (h Header) Put(b []byte) { binary.LittleEndian.PutUint64(b, h.Word()) }

// Parse reads what Put wrote.
func (h *Header) Parse(b []byte) error {
	w := binary.LittleEndian.Uint64(b)
	*h = Header{Depth: int(min(uint32(byte(w)), MaxDepth+1)), Prefix: uint32(w >> 32), Moving: w&movingBit != 0}
	if h.Depth > MaxDepth || h.Moving && h.Depth == 0 || h.Word() != w || h.Prefix&^mask(h.Depth) != 0 {
		return ErrBucket
	}
	return nil
}

// Combined is a combined bucket in local memory.
type Combined struct {
	// Heads are the headers of the two buckets. While the subtable is being split they may differ.
	Heads [2]Header
	// Main says which of the two buckets is the main one; the other is the overflow bucket.
	Main  int
	Slots [CombinedSlots]Slot
}

// Parse reads a combined bucket. main is the index of its main bucket.
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

// slotAt is the offset of slot i in a combined bucket.
func slotAt(i int) int {
	return i/BucketSlots*BucketLen + bucketHeader + i%BucketSlots*8
}

// GroupSlot is the offset of slot i of a group of buckets.
func GroupSlot(i int) int { return slotAt(i) }

// Order is the number of the slot that is tried as number n of a combined bucket: those of the main
// bucket come before those of the overflow bucket, which another main bucket shares.
func (c *Combined) Order(n int) int { return (n + c.Main*BucketSlots) % CombinedSlots }

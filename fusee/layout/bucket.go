package layout

import (
	"encoding/binary"
	"errors"
)

// A bucket is 64 bytes:
//
//	0 local depth 4 | 4 prefix 4 | 8 slots, 7 of 8 bytes
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

// Header is the header of a bucket. It says to which subtable the bucket belongs.
type Header struct {
	// Depth is the local depth of the subtable. Prefix holds the lowest Depth bits of the prefixes
	// of its keys, which are the same for all of them.
	Depth  int
	Prefix uint32
}

// Has reports whether the keys of a hash are in the subtable.
func (h Header) Has(k Hash) bool { return (k.Prefix()^h.Prefix)&mask(h.Depth) == 0 }

// mask has the lowest depth bits set.
func mask(depth int) uint32 { return uint32(1)<<depth - 1 }

// Put writes the header to b.
func (h Header) Put(b []byte) {
	binary.LittleEndian.PutUint32(b, uint32(h.Depth))
	binary.LittleEndian.PutUint32(b[4:], h.Prefix)
}

// parse reads what Put wrote.
func (h *Header) parse(b []byte) error {
	depth := binary.LittleEndian.Uint32(b)
	h.Depth, h.Prefix = int(min(depth, MaxDepth+1)), binary.LittleEndian.Uint32(b[4:])
	if depth > MaxDepth || h.Prefix&^mask(h.Depth) != 0 {
		return ErrBucket
	}
	return nil
}

// Combined is a combined bucket in local memory.
type Combined struct {
	Header
	// Main says which of the two buckets is the main one; the other is the overflow bucket.
	Main  int
	Slots [CombinedSlots]Slot
}

// Parse reads a combined bucket. main is the index of its main bucket. Both buckets must be of one
// subtable.
func (c *Combined) Parse(main int, b []byte) error {
	if len(b) != CombinedLen {
		return ErrBucket
	}
	var other Header
	if err := c.Header.parse(b); err != nil {
		return err
	}
	if err := other.parse(b[BucketLen:]); err != nil {
		return err
	}
	if other != c.Header {
		return ErrBucket
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

// Find appends to dst the indices of the slots that name an object with the fingerprint of a hash.
func (c *Combined) Find(f Format, h Hash, dst []int) []int {
	for i, s := range c.Slots {
		if !f.Empty(s) && byte(s) == h.Fingerprint() {
			dst = append(dst, i)
		}
	}
	return dst
}

// Free appends the empty slots to dst. Those of the main bucket come before those of the overflow
// bucket, which another main bucket shares.
func (c *Combined) Free(f Format, dst []int) []int {
	for n := range CombinedSlots {
		if i := (n + c.Main*BucketSlots) % CombinedSlots; f.Empty(c.Slots[i]) {
			dst = append(dst, i)
		}
	}
	return dst
}

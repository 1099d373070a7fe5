package pdpm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/rdmalab/rdmalab/store/passive"
)

// Lengths in a server's memory, in bytes. atServing is the word of the superblock that has the
// number of the coordinator in pDPM-Central.
const (
	atServing = passive.SuperWord
	keyLen    = 8
	headLen   = 16 // length of the part of a copy before its value
	lockLen   = 8  // length of the lock word, which is before the copy in place
	line      = 64 // entries begin at multiples of it
)

// direct and central describe the superblocks of the two stores.
var direct, central = formOf("pdpm-direct 2"), formOf("pdpm-central 2")

func formOf(kind string) passive.Form {
	return passive.Form{Kind: kind, Buffer: bufferLen, Size: func(n passive.Numbers) uint64 { return shapeOf(n).size() }}
}

// Shape has the number of entries of each server, the length of the longest value in bytes, and the
// lease: the time after which a client takes over a lock whose word has not changed.
type Shape struct {
	Entries int           `json:"entries"`
	Value   int           `json:"value"`
	Lease   time.Duration `json:"leaseNs"`
}

func (s Shape) numbers() passive.Numbers { return passive.Numbers{s.Entries, s.Value, int(s.Lease)} }
func shapeOf(n passive.Numbers) Shape    { return Shape{n[0], n[1], time.Duration(n[2])} }

// String returns the text that follows "each with" in the output of start.
func (s Shape) String() string {
	return fmt.Sprintf("%d entries for values of up to %d bytes, and locks with a lease of %v", s.Entries, s.Value, s.Lease)
}

func (s Shape) copyLen() int  { return headLen + (s.Value+7)&^7 }
func (s Shape) entryLen() int { return (lockLen + 2*s.copyLen() + line - 1) &^ (line - 1) }

func (s Shape) keys() passive.Keys {
	return passive.Keys{At: s.keyAt(0), SlotLen: keyLen, Slots: s.Entries}
}

// keyAt returns the offset of the key of entry i in a server's memory.
func (s Shape) keyAt(i uint64) uint64 { return passive.SuperLen + i*keyLen }

// entryAt returns the offset of entry i in a server's memory.
func (s Shape) entryAt(i uint64) uint64 {
	return (s.keyAt(uint64(s.Entries))+line-1)&^(line-1) + i*uint64(s.entryLen())
}

// entryOf returns the number of the entry that begins at an offset of a server's memory.
func (s Shape) entryOf(at uint64) uint64 { return (at - s.entryAt(0)) / uint64(s.entryLen()) }

// end returns where a server's part ends.
func (s Shape) end() uint64 { return s.entryAt(uint64(s.Entries)) }

// size returns the length of a server's part, in bytes. It is 0 if no table can have this shape.
func (s Shape) size() uint64 {
	if s.Value < 0 || s.Value > maxValue || s.Entries < 1 || s.Entries > maxEntries || s.Lease <= 0 {
		return 0
	}
	return s.end()
}

// Need returns how much memory each server must share for a table of this shape, in bytes.
func (s Shape) Need() int { return int(s.end()) + line + keyLen + s.entryLen() }

// tag is the value of a lock word: the number of the client that holds the lock, and how many
// locks the client has taken under this number. 0 means that the lock is free. A copy has the tag
// of the write that made it; in pDPM-Central it has a version instead.
type tag uint64

func makeTag(owner, count uint32) tag { return tag(owner)<<32 | tag(count) }
func (t tag) owner() uint32           { return uint32(t >> 32) }

// deletedBit in the length of a copy marks a deleted key.
const deletedBit = 1 << 31

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the checksum of a copy. It includes the key, which the copy does not store.
func sum(key uint64, head, value []byte) uint32 {
	var k [8]byte
	binary.LittleEndian.PutUint64(k[:], key)
	s := crc32.Checksum(k[:], castagnoli)
	s = crc32.Update(s, castagnoli, head[:12])
	return crc32.Update(s, castagnoli, value)
}

// putCopy makes the bytes of a copy in b, and returns them.
func putCopy(b []byte, t tag, key uint64, value []byte, deleted bool) []byte {
	le := binary.LittleEndian
	n := uint32(len(value))
	if deleted {
		n |= deletedBit
	}
	b = le.AppendUint64(b[:0], uint64(t))
	b = le.AppendUint32(b, n)
	b = append(le.AppendUint32(b, 0), value...)
	le.PutUint32(b[12:], sum(key, b, value))
	return b
}

// tagOf returns the tag in the head of a copy. It is 0 if the copy was never written.
func tagOf(head []byte) tag { return tag(binary.LittleEndian.Uint64(head)) }

// alive reports whether the copy with this head has a value. It is false if the copy was never
// written, or if it marks a deleted key.
func alive(head []byte) bool {
	return tagOf(head) != 0 && binary.LittleEndian.Uint32(head[8:])&deletedBit == 0
}

// valueOf returns the value of a copy. ok is false if the copy is torn. A copy that was never
// written has no value and is not torn.
func valueOf(b []byte, key uint64) (value []byte, ok bool) {
	n := uint64(binary.LittleEndian.Uint32(b[8:]) &^ deletedBit)
	if tagOf(b) == 0 {
		return nil, binary.LittleEndian.Uint64(b[8:]) == 0
	}
	if n > uint64(len(b)-headLen) {
		return nil, false
	}
	value = b[headLen : headLen+n]
	return value, sum(key, b, value) == binary.LittleEndian.Uint32(b[12:])
}

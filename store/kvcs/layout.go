package kvcs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Shape is the size of a table. All replicas of a store have the same shape.
type Shape struct {
	// Buckets is the number of buckets with eight slots each. Cells is how many values there is
	// room for, including the new values of changes in progress. Value is the length of the longest
	// value in bytes.
	Buckets, Cells, Value int
}

// Layout of a table: the buckets, one more bucket, and the cells. A key may be in any slot of two
// buckets, its home and the next one: the window of the key. A client reads a window by one READ.
const (
	slotLen     = 32
	bucketSlots = 8
	windowSlots = 2 * bucketSlots
	windowLen   = windowSlots * slotLen
	cellHead    = 24
	cellAlign   = 64
)

// Bounds of a Shape.
const (
	maxBuckets = 1 << 20
	maxCells   = 1 << 22
	// MaxValue is the length of the longest value in bytes: a record with such a value fits into one
	// datagram on a link with an MTU of 4200 bytes.
	MaxValue = 4000
)

// Validate returns an error if no table can have this shape.
func (s Shape) Validate() error {
	if s.Buckets < 1 || s.Buckets > maxBuckets || s.Cells < 1 || s.Cells > maxCells || s.Value < 1 || s.Value > MaxValue {
		return fmt.Errorf("a table of %d buckets and %d cells of %d bytes: use 1 to %d, %d and %d", s.Buckets, s.Cells, s.Value, maxBuckets, maxCells, MaxValue)
	}
	return nil
}

// Bytes returns the length of a table in bytes.
func (s Shape) Bytes() int { return s.cellAt(uint32(s.Cells)) }

func (s Shape) cellLen() int {
	return (cellHead + s.Value + cellAlign - 1) / cellAlign * cellAlign
}

func (s Shape) slots() int { return (s.Buckets + 1) * bucketSlots }

func (s Shape) cellAt(cell uint32) int { return s.slots()*slotLen + int(cell)*s.cellLen() }

// window returns the index of the first slot of a key's window.
func (s Shape) window(key uint64) int { return int(mix(key)%uint64(s.Buckets)) * bucketSlots }

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// slotState is the state of a slot:
//
//	free ── a change begins ──▶ pending ── it has taken effect ──▶ live, or free
//	live ── a change begins ──▶ pending
type slotState uint32

const (
	free slotState = iota
	live
	pending
)

// slot is an entry of the index. The version is the position in the coordinator's log of the record
// that has written the value.
type slot struct {
	key, version uint64
	cell, length uint32
	state        slotState
}

// encode writes the slot with its checksum. A free slot is all zeros.
func (s *slot) encode(b *[slotLen]byte) {
	*b = [slotLen]byte{}
	if s.state == free {
		return
	}
	binary.LittleEndian.PutUint64(b[0:], s.key)
	binary.LittleEndian.PutUint64(b[8:], s.version)
	binary.LittleEndian.PutUint32(b[16:], s.cell)
	binary.LittleEndian.PutUint32(b[20:], s.length)
	binary.LittleEndian.PutUint32(b[24:], uint32(s.state))
	binary.LittleEndian.PutUint32(b[28:], crc32.ChecksumIEEE(b[:28]))
}

// parse reads a slot. It returns false if the bytes are neither a slot of encode nor all zero.
func (s *slot) parse(b []byte) bool {
	b = b[:slotLen]
	if [slotLen]byte(b) == [slotLen]byte{} {
		*s = slot{}
		return true
	}
	*s = slot{
		key: binary.LittleEndian.Uint64(b), version: binary.LittleEndian.Uint64(b[8:]), cell: binary.LittleEndian.Uint32(b[16:]),
		length: binary.LittleEndian.Uint32(b[20:]), state: slotState(binary.LittleEndian.Uint32(b[24:])),
	}
	return binary.LittleEndian.Uint32(b[28:]) == crc32.ChecksumIEEE(b[:28]) && (s.state == live || s.state == pending)
}

// appendCell appends a cell: key, version, length, checksum, value.
func appendCell(b []byte, key, version uint64, value []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, key)
	b = binary.LittleEndian.AppendUint64(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	sum := crc32.Update(crc32.ChecksumIEEE(b[at:]), crc32.IEEETable, value)
	return append(binary.LittleEndian.AppendUint32(b, sum), value...)
}

// valueOf returns the value in a cell that has been read. It returns false if the cell does not
// hold the value that slot s names.
func valueOf(b []byte, s *slot) ([]byte, bool) {
	sum := crc32.Update(crc32.ChecksumIEEE(b[:20]), crc32.IEEETable, b[cellHead:])
	ok := binary.LittleEndian.Uint64(b) == s.key && binary.LittleEndian.Uint64(b[8:]) == s.version &&
		binary.LittleEndian.Uint32(b[16:]) == s.length && binary.LittleEndian.Uint32(b[20:]) == sum
	return b[cellHead:], ok
}

package nictable

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/rdmalab/rdmalab/redn"
)

// Lengths in memory, in bytes, and limits.
const (
	line         = 64 // a reader sees a change within this many aligned bytes as a whole or not at all
	itemHead     = 24
	probes       = 2
	defaultValue = 1000
	// maxValue is the length of an item of memcached with 64 KiB of data, its head of 6 bytes and a
	// key of 250 bytes.
	maxValue     = 64<<10 + 256
	defaultItems = 10_000
	maxItems     = 1 << 22
	maxRate      = 10_000_000 // GETs a second; a NIC answers far fewer
	slotsPerItem = 3          // a key may be in one of two slots only, so inserts fail when about half of all slots are used
)

type Shape struct {
	// Items is how many keys the table has room for. Value is the length of the longest value in
	// bytes.
	Items int `json:"items"`
	Value int `json:"value"`
	// Slots is the number of slots, at least 2; 0 means three for each key.
	Slots int `json:"slots,omitempty"`
}

func (s Shape) String() string {
	return fmt.Sprintf("%d keys with values of up to %d bytes", s.Items, s.Value)
}

// shapeLen is the length of a shape in answers and private data, in bytes.
const shapeLen = 12

// append appends the shape to an answer or to private data.
func (s Shape) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(s.Items)), uint32(s.Value))
	return binary.BigEndian.AppendUint32(b, uint32(s.Slots))
}

// parseShape reads a shape, from shapeLen bytes. It returns an error if no table can have this
// shape.
func parseShape(b []byte) (Shape, error) {
	number := func(at int) int { return int(binary.BigEndian.Uint32(b[at:])) }
	return Shape{Items: number(0), Value: number(4), Slots: number(8)}.withDefaults()
}

func (s Shape) itemLen() int      { return (itemHead + s.Value + line - 1) &^ (line - 1) }
func (s Shape) slotAt(n int) int  { return line * (1 + n) }
func (s Shape) itemAt(n int) int  { return s.slotAt(s.Slots) + n*s.itemLen() }
func (s Shape) size() int         { return s.itemAt(s.Items + 1) } // one more, because a PUT writes the new item before it frees the old one
func (s Shape) itemOf(at int) int { return (at - s.itemAt(0)) / s.itemLen() }

// mix is a bijection of 64 bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// fingerprint returns the 48 bits that slots and requests have instead of a key; 0 stands for no
// key.
func fingerprint(key uint64) redn.Operand { return redn.Operand(max(1, mix(key+1)&(1<<48-1))) }

// slotsOf returns the two slots of a fingerprint.
func (s Shape) slotsOf(f redn.Operand) [probes]int {
	n := uint64(s.Slots)
	a := mix(uint64(f)) % n
	b := mix(uint64(f)^0x5bd1e995) % (n - 1)
	return [probes]int{int(a), int((a + 1 + b) % n)}
}

// slot is a slot of the table. print is the fingerprint of its key; 0 means that the slot is empty.
type slot struct {
	print   redn.Operand
	version uint32
	length  int    // length of the item in bytes
	at      uint64 // address of the item
}

func parseSlot(b []byte) (s slot) {
	for i := range redn.OperandLen {
		s.print |= redn.Operand(b[i]) << (8 * i)
	}
	b = b[redn.OperandLen:]
	return slot{s.print, binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint32(b[4:])), binary.BigEndian.Uint64(b[12:])}
}

func seal(b []byte, key uint64, version uint32, value []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(b, key)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, value...)
	binary.LittleEndian.PutUint32(b[start+16:], sum(b[start:]))
	return b
}

// sum is the checksum of an item.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(b[:16]), crc32.IEEETable, b[itemHead:])
}

// unseal returns the key and the value of the item at the beginning of b. ok is false if the item
// is not whole or has another version.
func unseal(b []byte, version uint32) (key uint64, value []byte, ok bool) {
	if len(b) < itemHead || binary.LittleEndian.Uint32(b[8:]) != version {
		return 0, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b[12:]))
	if n > uint64(len(b)-itemHead) || binary.LittleEndian.Uint32(b[16:]) != sum(b[:itemHead+n]) {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint64(b), b[itemHead : itemHead+n], true
}

package pdpm

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// Lengths and places in a server's memory, in bytes.
const (
	superLen  = 64
	atServing = 40 // word with the number of the coordinator, of pDPM-Central
	atClients = 48 // word that counts clients, on the first server
	keyLen    = 8
	headLen   = 16 // of a copy, before its value
	lockLen   = 8  // before the copy in place
	line      = 64
)

// kind is the first word of a superblock: which of the two stores has made the table.
type kind uint64

const (
	direct  kind = 0x3130_5244_4d50_4470 // "pDPMDR01"
	central kind = 0x3130_4543_4d50_4470 // "pDPMCE01"
)

// errAbsent: the memory was never formatted, or was lost. errForeign: it holds other data.
// errServers: the table was made on another list of servers.
var (
	errServers = errors.New("the table was made on another list of memory servers; start the store with --fresh to make a new one")
	errAbsent  = errors.New("no table in the memory: it is not formatted, or was lost")
	errForeign = errors.New("the memory holds other data, not a table of this store; start the store with --fresh to overwrite it")
)

// Shape is the superblock: a random generation, the number of servers, the entries of each server,
// the longest value in bytes, and the time after which a lock whose word does not change is taken
// over.
type Shape struct {
	Generation uint64        `json:"generation"`
	Servers    int           `json:"servers"`
	Entries    int           `json:"entries"`
	Value      int           `json:"value"`
	Lease      time.Duration `json:"leaseNs"`
}

func (s Shape) copyLen() int  { return headLen + (s.Value+7)&^7 }
func (s Shape) entryLen() int { return (lockLen + 2*s.copyLen() + line - 1) &^ (line - 1) }

// keyAt is the place of the key of entry i. Behind the last key is room for a READ of window keys.
func (s Shape) keyAt(i uint64) uint64 { return superLen + i*keyLen }

// entryAt is the place of entry i.
func (s Shape) entryAt(i uint64) uint64 {
	return (s.keyAt(uint64(s.Entries)+window)+line-1)&^(line-1) + i*uint64(s.entryLen())
}

// size is the length of a server's part.
func (s Shape) size() uint64 { return s.entryAt(uint64(s.Entries)) }

// Need is how much memory each server must lend for a table of this shape, in bytes.
func (s Shape) Need() int { return int(s.size()) + line + keyLen + s.entryLen() }

func (s Shape) encode(k kind) []byte {
	b := make([]byte, superLen)
	for i, v := range []uint64{uint64(k), s.Generation, uint64(s.Servers)<<32 | uint64(s.Value), uint64(s.Entries), uint64(s.Lease)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return b
}

// parse reads what encode wrote, for memory of size bytes.
func (s *Shape) parse(b []byte, k kind, size int) error {
	u := func(i int) int { return int(binary.LittleEndian.Uint64(b[8*i:])) }
	*s = Shape{Generation: uint64(u(1)), Servers: u(2) >> 32, Value: u(2) & (1<<32 - 1), Entries: u(3), Lease: time.Duration(u(4))}
	switch {
	case u(0) == 0:
		return errAbsent
	case kind(u(0)) != k || s.Value < 0 || s.Value > maxValue || s.Entries < 1 || s.Entries > maxEntries || s.Lease <= 0 || s.size() > uint64(size):
		return errForeign
	}
	return nil
}

// tag names one lock of one client: its number and a count. 0: the lock is free.
type tag uint64

func makeTag(owner, count uint32) tag { return tag(owner)<<32 | tag(count) }
func (t tag) owner() uint32           { return uint32(t >> 32) }

// deletedBit in the length of a copy marks a deleted key.
const deletedBit = 1 << 31

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a copy. The key is not in the copy: a copy has no other key ever.
func sum(key uint64, head, value []byte) uint32 {
	var k [8]byte
	binary.LittleEndian.PutUint64(k[:], key)
	s := crc32.Checksum(k[:], castagnoli)
	s = crc32.Update(s, castagnoli, head[:12])
	return crc32.Update(s, castagnoli, value)
}

// putCopy writes a copy to b.
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

// tagOf is the tag in the head of a copy; 0: the copy was never written.
func tagOf(head []byte) tag { return tag(binary.LittleEndian.Uint64(head)) }

// alive reports whether the head is that of a copy with a value.
func alive(head []byte) bool {
	return tagOf(head) != 0 && binary.LittleEndian.Uint32(head[8:])&deletedBit == 0
}

// valueOf returns the value of a copy. ok is false if the copy is torn.
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

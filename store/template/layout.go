package template

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Lengths and places in a server's memory, in bytes.
const (
	superLen  = 64
	atClients = 40 // word that counts clients, on the first server
	atObjects = 48 // word that counts the objects of the server that were given out
	slotLen   = 16
	headLen   = 24 // of an object, before its value
)

// magic is how a store knows its own memory: a copy with another name has another one.
var magic = uint64(crc32.ChecksumIEEE([]byte("template")))<<32 | 1

// errAbsent: the memory was never formatted, or was lost. errForeign: it holds other data.
// errServers: the table was made on another list of servers.
var (
	errServers = errors.New("the table was made on another list of memory servers; `rdmalab template start --fresh` makes a new one")
	errAbsent  = errors.New("no table in the memory: it is not formatted, or was lost")
	errForeign = errors.New("the memory holds data that is not a table of this store; `rdmalab template start --fresh` overwrites it")
)

// Shape is the superblock: a random generation, the number of servers, the slots and objects of
// each server, and the longest value in bytes.
type Shape struct {
	Generation uint64 `json:"generation"`
	Servers    int    `json:"servers"`
	Slots      int    `json:"slots"`
	Objects    int    `json:"objects"`
	Value      int    `json:"value"`
}

func (s Shape) objectLen() int         { return headLen + (s.Value+7)&^7 }
func (s Shape) slotAt(i uint64) uint64 { return superLen + i*slotLen }

// objectAt is the place of object n, from 1 on.
func (s Shape) objectAt(n uint32) uint64 {
	return s.slotAt(uint64(s.Slots)+maxProbe) + uint64(n-1)*uint64(s.objectLen())
}

// size is the length of a server's part.
func (s Shape) size() uint64 { return s.objectAt(uint32(s.Objects) + 1) }

func (s Shape) encode() []byte {
	b := make([]byte, superLen)
	for i, v := range []uint64{magic, s.Generation, uint64(s.Servers)<<32 | uint64(s.Value), uint64(s.Slots), uint64(s.Objects)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return b
}

// parse reads what encode wrote, for memory of size bytes.
func (s *Shape) parse(b []byte, size int) error {
	u := func(i int) int { return int(binary.LittleEndian.Uint64(b[8*i:])) }
	*s = Shape{Generation: uint64(u(1)), Servers: u(2) >> 32, Value: u(2) & (1<<32 - 1), Slots: u(3), Objects: u(4)}
	switch {
	case u(0) == 0:
		return errAbsent
	case uint64(u(0)) != magic || s.Value < 0 || s.Value > maxValue || s.Slots < 1 || s.Slots > maxObjects || s.Objects < 1 || s.Objects > maxObjects || s.size() > uint64(size):
		return errForeign
	}
	return nil
}

// word is the second half of a slot: version 39 bits | deleted 1 | object 24. 0: the key never had
// a value.
type word uint64

const (
	deleted    word = 1 << 24
	maxObjects      = 1<<24 - 1
)

func (w word) version() uint64 { return uint64(w) >> 25 }
func (w word) object() uint32  { return uint32(w) & maxObjects }
func (w word) alive() bool     { return w != 0 && w&deleted == 0 }

// next is the word that replaces w.
func (w word) next(object uint32) word { return word(w.version()+1)<<25 | word(object) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of an object.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:20], castagnoli), castagnoli, b[headLen:])
}

// putObject writes an object to b.
func putObject(b []byte, w word, key uint64, value []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b[:0], uint64(w))
	b = le.AppendUint64(b, key)
	b = le.AppendUint32(b, uint32(len(value)))
	b = append(le.AppendUint32(b, 0), value...)
	le.PutUint32(b[20:], sum(b))
	return b
}

// valueOf returns the value of an object that was read; false: it is not, or not yet whole, the
// object that w names.
func valueOf(b []byte, w word, key uint64) ([]byte, bool) {
	le := binary.LittleEndian
	n := uint64(le.Uint32(b[16:]))
	if le.Uint64(b) != uint64(w) || le.Uint64(b[8:]) != key || n > uint64(len(b)-headLen) || sum(b[:headLen+n]) != le.Uint32(b[20:]) {
		return nil, false
	}
	return b[headLen : headLen+n], true
}

package layout

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// An object, by its parts: offset, name and length of each.
//
//	hardened   0 mark 1 | 1 version, low byte 1 | 2 length of the key 2 | 4 length of the value 2
//	           6 version, upper bytes 2 | 8 key | value | log entry
//	published  0 mark 1 | 1 unused 1 | 2 length of the key 2 | 4 length of the value 4 | 8 key | value | log entry
//
// So the first 16 bytes of a hardened object say to which use of the memory and to which key it
// belongs (Head). A READ never returns a part of a change to these bytes, because memory copies
// tear only at boundaries of 64 bytes.
//
// The log entry has 32 bytes and follows the value without padding, so that one WRITE writes both:
//
//	hardened   0 next 6 | 6 previous 6 | 12 unused 2 | 14 operation and used bit 1 | 15 unused 1
//	           16 checksum 4 | 20 old value of the slot 8 | 28 checksum of the outcome 4
//	published  0 next 6 | 6 previous 6 | 12 unused 4 | 16 old value of the slot 8
//	           24 checksum 1 | 25 operation and used bit 1 | 26 unused 6
const (
	objectHeader  = 8
	keyLen        = 8
	atVersion     = 1
	atVersionHigh = 6
	// HeadLen is the length of the part of an object that ParseHead parses.
	HeadLen  = objectHeader + keyLen
	EntryLen = 32
	// Overhead is the number of bytes of an object that are not its value.
	Overhead = objectHeader + keyLen + EntryLen
)

// Errors of objects.
var (
	ErrObject = errors.New("the bytes are no object of the store")
	// ErrTorn: the object was written while it was being read, or its WRITE was not completed.
	ErrTorn = errors.New("an object that is not whole")
)

// Op is the operation that has made an object.
type Op uint8

// Operations.
const (
	OpInsert Op = iota + 1
	OpUpdate
	OpDelete
	// OpFinished replaces the operation in the log entry of an operation that has lost. Only the
	// published format has it.
	OpFinished
)

// Mark is the first byte of an object. A client changes it later by a WRITE of this byte alone.
type Mark uint8

// Marks of an object.
const (
	// Invalid (Published only): the object was replaced. A client that has remembered the object's
	// place no longer uses it.
	Invalid Mark = iota
	Valid
	// Pending (Hardened only): the object was inserted, but its client does not know yet whether
	// another client inserts the same key. Until the client knows that, the key is absent for all
	// other clients.
	Pending
)

// Link names an object, by its first replica, in the list of a client's objects of one size; 0
// names no object.
//
//	bits 0 to 3  server | bits 4 to 47  place in units
type Link uint64

const linkBits = 1<<48 - 1

func LinkTo(server int, place uint64) Link {
	return Link(place<<4|uint64(server%MaxServers)) & linkBits
}

// Object is an object in local memory.
type Object struct {
	Mark  Mark
	Key   uint64
	Value []byte
	// Next and Previous are the neighbours of this object in the list of the client's objects of
	// one size, in the order in which the client uses them.
	Next, Previous Link
	// Version grows with each use of the object's memory (Hardened only).
	Version uint32
	Op      Op
	// Outcome is the outcome of the operation that has made the object. Old is the value in the
	// slot that the operation has replaced.
	Outcome Outcome
	Old     Slot
	// sum is the checksum of the object (Hardened only).
	sum uint32
}

// Outcome is what a log entry says about its operation.
type Outcome uint8

// Outcomes.
const (
	// Unknown: the log entry contains no outcome yet.
	Unknown Outcome = iota
	// Incomplete: the WRITE of the outcome was not completed.
	Incomplete
	// Committed: the operation has won, and may have changed the slot.
	Committed
	// Finished: the operation has lost and changes nothing.
	Finished
)

var outcomeNames = [...]string{"unknown", "incomplete", "committed", "finished"}

func (o Outcome) String() string { return outcomeNames[min(o, Finished)] }

// Units returns the length, in units, of an object with a value of n bytes.
func Units(n int) int { return (Overhead + n + Unit - 1) / Unit }

// Offsets in a log entry.
const (
	atOp           = 14
	atSum          = 16
	atOld          = 20
	atOutcome      = 28
	atPublishedOld = 16
	atPublishedOp  = 25
	usedBit        = 1 << 7
	// publishedSum is the constant that the public code writes as a checksum.
	publishedSum = 0xff
	// finishedOld, as the old value in a log entry, says that the operation has lost.
	finishedOld = ^Slot(0)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendTo appends the bytes of an object to b. Its log entry has no outcome yet. A client writes
// these bytes by one WRITE.
func (o *Object) AppendTo(f Format, b []byte) []byte {
	at := len(b)
	b = append(b, byte(o.Mark), 0)
	b = binary.LittleEndian.AppendUint16(b, keyLen)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(o.Value)))
	if f == Hardened {
		b[at+atVersion] = byte(o.Version)
		binary.LittleEndian.PutUint16(b[at+atVersionHigh:], uint16(o.Version>>8))
	}
	b = binary.LittleEndian.AppendUint64(b, o.Key)
	b = append(b, o.Value...)
	var e [EntryLen]byte
	putLink(e[:], o.Next)
	putLink(e[6:], o.Previous)
	if f == Published {
		e[atPublishedOp] = byte(o.Op) | usedBit
		return append(b, e[:]...)
	}
	e[atOp] = byte(o.Op) | usedBit
	b = append(b, e[:]...)
	entry := b[len(b)-EntryLen:]
	o.sum = sumOf(b[at:])
	binary.LittleEndian.PutUint32(entry[atSum:], o.sum)
	return b
}

// sumOf returns the checksum of the object b. It covers all bytes except the mark, the checksum
// itself and the bytes of the log entry that are written later.
func sumOf(b []byte) uint32 { return crc32.Checksum(b[1:len(b)-EntryLen+atSum], castagnoli) }

func putLink(b []byte, l Link) {
	binary.LittleEndian.PutUint32(b, uint32(l))
	binary.LittleEndian.PutUint16(b[4:], uint16(l>>32))
}

func link(b []byte) Link {
	return Link(binary.LittleEndian.Uint32(b)) | Link(binary.LittleEndian.Uint16(b[4:]))<<32
}

// Parse parses the object at the beginning of b. o.Value is a part of b afterwards, not a copy. The
// error ErrTorn means that the lengths are valid but the object is not complete.
func (o *Object) Parse(f Format, b []byte) error {
	if len(b) < Overhead || b[0] > byte(Pending) || f == Published && b[0] > byte(Valid) || binary.LittleEndian.Uint16(b[2:]) != keyLen {
		return ErrObject
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if f == Hardened {
		n &= 1<<16 - 1
	}
	if uint64(n) > uint64(len(b)-Overhead) {
		return ErrObject
	}
	b = b[:Overhead+int(n)]
	e := b[len(b)-EntryLen:]
	*o = Object{
		Mark: Mark(b[0]), Key: binary.LittleEndian.Uint64(b[objectHeader:]), Value: b[objectHeader+keyLen : len(b)-EntryLen],
		Next: link(e), Previous: link(e[6:]),
	}
	if f == Published {
		return o.parsePublished(e)
	}
	o.Version = versionIn(b)
	o.Op, o.sum = Op(e[atOp]&^usedBit), binary.LittleEndian.Uint32(e[atSum:])
	if o.sum != sumOf(b) || e[atOp]&usedBit == 0 {
		return ErrTorn
	}
	o.Old = Slot(binary.LittleEndian.Uint64(e[atOld:]))
	switch sum := binary.LittleEndian.Uint32(e[atOutcome:]); {
	case sum == 0 && o.Old == 0:
	case sum != outcomeSum(o.Old, o.sum):
		o.Outcome, o.Old = Incomplete, 0
	case o.Old == finishedOld:
		o.Outcome, o.Old = Finished, 0
	default:
		o.Outcome = Committed
	}
	return nil
}

// versionIn returns the version in the head of a hardened object.
func versionIn(b []byte) uint32 {
	return uint32(b[atVersion]) | uint32(binary.LittleEndian.Uint16(b[atVersionHigh:]))<<8
}

// Head is what the first HeadLen bytes of a hardened object contain. The rest of the object may be
// torn; Parse finds that out.
type Head struct {
	Mark    Mark
	Version uint32
	Key     uint64
}

// ParseHead parses the first HeadLen bytes of an object. b must have at least HeadLen bytes.
func ParseHead(b []byte) Head {
	return Head{Mark: Mark(b[0]), Version: versionIn(b), Key: binary.LittleEndian.Uint64(b[objectHeader:])}
}

// parsePublished parses a log entry as the public code does: if the old value is not 0, the
// operation is committed, whatever the checksum is.
func (o *Object) parsePublished(e []byte) error {
	if e[atPublishedOp]&usedBit == 0 {
		return ErrTorn
	}
	o.Op, o.Old = Op(e[atPublishedOp]&^usedBit), Slot(binary.LittleEndian.Uint64(e[atPublishedOld:]))
	switch {
	case o.Op == OpFinished:
		o.Outcome = Finished
	case o.Old != 0:
		o.Outcome = Committed
	}
	return nil
}

// outcomeSum returns the checksum of an outcome. The checksum is never 0, which stands for no
// outcome, and depends on the object's own checksum.
func outcomeSum(old Slot, object uint32) uint32 {
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], uint64(old))
	binary.LittleEndian.PutUint32(b[8:], object)
	return max(1, crc32.Checksum(b[:], castagnoli))
}

// Range is a part of an object, in bytes.
type Range struct{ Off, Len int }

// Commit appends to b the bytes that commit an operation. They belong into the log entry of the
// operation's object, which AppendTo has made; the Range says where in the object. old is the value
// in the slot that the operation replaces.
func (o *Object) Commit(f Format, old Slot, b []byte) ([]byte, Range) {
	if f == Published {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(old)), publishedSum)
		return b, o.inEntry(atPublishedOld, 9)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(old))
	b = binary.LittleEndian.AppendUint32(b, outcomeSum(old, o.sum))
	return b, o.inEntry(atOld, 12)
}

func (o *Object) inEntry(at, n int) Range { return Range{objectHeader + keyLen + len(o.Value) + at, n} }

package layout

import (
	"encoding/binary"
	"errors"

	"github.com/rdmalab/rdmalab/store/superblock"
)

// Superblock is at the start of a memory server's region. A client reads it to see that the memory
// belongs to the store, and that it is still the same memory.
//
//	0       8        12        16          24      28        29          32          59  60      64
//	+-------+--------+---------+-----------+-------+---------+-----------+-----------+---+-------+
//	| magic | format | server  | generation| owner | servers | shortcuts | entries   | 0 | store |
//	|       |        |         |           |       |         | 3 bytes   | 9·3 bytes |   |       |
//	+-------+--------+---------+-----------+-------+---------+-----------+-----------+---+-------+
//
// In a store with copies, the second byte of format has the number of backups, and the third and
// fourth bytes have the field Out. The upper three bytes of server have the field View. In other
// stores these bytes are 0.
type Superblock struct {
	Format Format
	// Server is the index of the server in the space.
	Server int
	// Generation is a random number. The metadata server chooses it when it formats the region and,
	// in a store with copies, when it has filled the region from the copies on other servers. The
	// memory of a server that was restarted has no superblock and so no generation.
	Generation uint64
	// Owner is the number of the present incarnation of the metadata server. A metadata server that
	// restarts takes the next number before it answers any client.
	Owner uint32
	// Space is the arrangement of the store. A switch that steers reads it from packets with a
	// superblock. Space is zero if a count was too large for the superblock.
	Space Space
	// Store is a random number that all servers of a store have in common. It shows a switch that
	// their memories belong together. 0 means unknown.
	Store uint32
	// View counts the changes of the set of servers whose copies count. Out has bit i set if the
	// copies on server i do not count. If superblocks differ, the one with the highest View is
	// right.
	View uint32
	Out  uint16
}

// maxView is the highest View, which has 24 bits. The next View would be 0, but a store does not
// change its set of servers 16 million times.
const maxView = 1<<24 - 1

// ErrSuperblock means that the memory does not begin with a superblock: the memory was never
// formatted, or was lost.
var ErrSuperblock = errors.New("no superblock: the memory is not formatted, or was lost")

// ErrVersion means that the memory holds a store that another version of this package has arranged.
var ErrVersion = errors.New("a store in an arrangement of another version of rdmalab")

// Put writes the superblock to b, which has SuperblockLen bytes.
func (s *Superblock) Put(b []byte) {
	clear(b[:SuperblockLen])
	binary.LittleEndian.PutUint64(b, superblock.Clover)
	binary.LittleEndian.PutUint32(b[8:], s.Format.Bits()|uint32(s.Space.Backups)<<8|uint32(s.Out)<<16)
	binary.LittleEndian.PutUint32(b[12:], uint32(s.Server)|s.View&maxView<<8)
	binary.LittleEndian.PutUint64(b[16:], s.Generation)
	binary.LittleEndian.PutUint32(b[24:], s.Owner)
	s.putSpace(b[28:storeAt])
	binary.LittleEndian.PutUint32(b[storeAt:], s.Store)
}

const storeAt = 60

// sharedBit in the number of servers marks a shared space.
const sharedBit = 0x80

// maxPut is the largest count that fits into a superblock.
const maxPut = 1<<24 - 1

func (s *Superblock) putSpace(b []byte) {
	if s.Space.Validate() != nil || s.Space.Shortcuts > maxPut {
		return
	}
	for _, n := range s.Space.Entries {
		if n > maxPut {
			return
		}
	}
	b[0] = byte(s.Space.Servers)
	if s.Space.Shared {
		b[0] |= sharedBit
	}
	put24(b[1:], s.Space.Shortcuts)
	for i, n := range s.Space.Entries {
		put24(b[4+3*i:], n)
	}
}

// parseSpace reads what putSpace wrote. If the space is not valid, s.Space becomes zero.
func (s *Superblock) parseSpace(b []byte) {
	v := Space{Servers: int(b[0] &^ sharedBit), Shortcuts: get24(b[1:]), Shared: b[0]&sharedBit != 0, Backups: s.Space.Backups}
	for i := range v.Entries {
		v.Entries[i] = get24(b[4+3*i:])
	}
	if s.Space = v; v.Validate() != nil || s.Server >= v.Servers {
		s.Space = Space{}
	}
}

func put24(b []byte, n int) { b[0], b[1], b[2] = byte(n), byte(n>>8), byte(n>>16) }

func get24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// Parse reads what Put wrote. Its errors are ErrSuperblock and ErrVersion.
func (s *Superblock) Parse(b []byte) error {
	if len(b) < SuperblockLen {
		return ErrSuperblock
	}
	switch magic := binary.LittleEndian.Uint64(b); {
	case magic == superblock.Clover:
	case magic&^superblock.CloverVersion == superblock.Clover&^superblock.CloverVersion:
		return ErrVersion
	default:
		return ErrSuperblock
	}
	var ok bool
	s.Format, ok = FormatOf(uint32(b[8]))
	s.Space.Backups, s.Out = int(b[9]), binary.LittleEndian.Uint16(b[10:])
	server := binary.LittleEndian.Uint32(b[12:])
	s.Server, s.View = int(server&0xff), server>>8
	s.Generation = binary.LittleEndian.Uint64(b[16:])
	s.Owner = binary.LittleEndian.Uint32(b[24:])
	s.parseSpace(b[28:storeAt])
	s.Store = binary.LittleEndian.Uint32(b[storeAt:])
	if !ok || s.Server >= MaxServers || s.Generation == 0 {
		return ErrSuperblock
	}
	return nil
}

// KeyRecord is the record of a key in the directory. A restarted metadata server finds the chain of
// the key by it. At is a node of the chain that is still in use: the newest node, or one from which
// the newest can be reached. Only the metadata server writes the directory.
//
// A mirror is a further record of the key, on another server. If all copies of the record are lost
// with their memory, a restarted metadata server learns from the mirror which key is lost.
type KeyRecord struct {
	Key uint64
	At  Location
	// Generation has the lowest 24 bits of the generation of the memory that contained the node At.
	// If that server's memory has another generation now, the key is lost. In a store with copies,
	// Generation is 0.
	Generation uint32
	// Lost is true if a part of the chain was in memory that was lost. Then At has no meaning.
	Lost bool
}

// lostRecord replaces the location in the record of a lost key. It is no location, because its
// handle is 0.
const lostRecord = tombstoneBit

// Put writes the record to b, which has RecordLen bytes. The zero record marks a slot without key.
func (r KeyRecord) Put(b []byte) {
	binary.LittleEndian.PutUint64(b, r.Key)
	at := r.At.Stamped(r.Generation)
	if r.Lost {
		at = lostRecord
	}
	binary.LittleEndian.PutUint64(b[8:], uint64(at))
}

// ParseKeyRecord reads what Put wrote. ok is false for a slot without a key.
func ParseKeyRecord(b []byte) (r KeyRecord, ok bool) {
	if len(b) < RecordLen {
		return r, false
	}
	r.Key = binary.LittleEndian.Uint64(b)
	at := Word(binary.LittleEndian.Uint64(b[8:]))
	if r.Lost = at == lostRecord; r.Lost {
		return r, true
	}
	r.At, r.Generation, ok = StampedLocation(at)
	return r, ok
}

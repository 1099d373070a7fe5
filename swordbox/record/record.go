package record

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Sizes of the parts in slots and bytes.
const (
	// MaxRows is how many rows can be recorded, MaxConns how many connections.
	MaxRows  = 8192
	MaxConns = 1024
	// MaxRules bounds the text of the rules in bytes.
	MaxRules = 64<<10 - bankHead

	slotLen  = 64
	headLen  = 64
	bankHead = 16
	bankLen  = 64 << 10
	rowsAt   = headLen
	connsAt  = rowsAt + MaxRows*slotLen
	banksAt  = connsAt + MaxConns*slotLen
	// Size of a record in bytes.
	Size = banksAt + 2*bankLen
)

// magic begins a record of this layout.
const magic = "rdmalab switch 1"

// ErrFull says that there is no free slot.
var ErrFull = errors.New("the switch's record is full")

// Row is a half-connection that was moved.
type Row struct {
	// Slot is where a row of a former life is recorded.
	Slot           Slot
	Client, Server netip.Addr
	// ClientQPN is where answers go, ServerQPN where requests go.
	ClientQPN, ServerQPN wire.QPN
	// Oldest is the PSN of the first request that was not answered.
	Oldest wire.PSN
}

// Conn is a connection that the switch has made: what is needed to end it.
type Conn struct {
	// Slot is where a connection of a former life is recorded.
	Slot   Slot
	Server netip.Addr
	// OwnID and ServerID are the numbers of the connection at both ends.
	OwnID, ServerID uint32
	ServerQPN       wire.QPN
}

// Former is what an earlier life has left.
type Former struct {
	Rows  []Row
	Conns []Conn
}

// Slot names a row or a connection in the record. The zero value names none, and what is done to it has no effect.
type Slot int

// Record is the memory. The nil Record remembers nothing and refuses nothing.
type Record struct {
	b         []byte
	freeRows  []Slot
	freeConns []Slot
	bank      int    // that holds the rules
	serial    uint32 // of the rules; 0: there are none
	former    Former
	stats     Stats
}

// Stats counts.
type Stats struct {
	// Of MaxRows and MaxConns.
	Rows    int    `help:"rows in the record"`
	Conns   int    `help:"own connections in the record"`
	Refused uint64 `help:"rows and connections that found no room"`
}

// Open takes over b, of Size bytes, which is a record or zero. What is no record is an error; Format makes it one.
func Open(b []byte) (*Record, error) {
	if len(b) != Size {
		return nil, fmt.Errorf("record of %d bytes: want %d", len(b), Size)
	}
	r := &Record{b: b}
	switch string(b[:len(magic)]) {
	case magic:
	case string(make([]byte, len(magic))):
		copy(b, magic)
	default:
		return nil, errors.New("no record of this program's version")
	}
	for i := MaxRows; i > 0; i-- {
		if row, ok := r.row(Slot(i)); ok {
			r.former.Rows = append(r.former.Rows, row)
			continue
		}
		r.freeRows = append(r.freeRows, Slot(i))
	}
	for i := MaxConns; i > 0; i-- {
		if c, ok := r.conn(Slot(i)); ok {
			r.former.Conns = append(r.former.Conns, c)
			continue
		}
		r.freeConns = append(r.freeConns, Slot(i))
	}
	r.openRules()
	return r, nil
}

// Format makes b, of Size bytes, an empty record.
func Format(b []byte) {
	clear(b)
	copy(b, magic)
}

// Former is what the life before has left. Its slots stay in use until EndRow and EndConn free them.
func (r *Record) Former() Former {
	if r == nil {
		return Former{}
	}
	return r.former
}

// Stats returns a copy of the counters.
func (r *Record) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	s := r.stats
	s.Rows, s.Conns = MaxRows-len(r.freeRows), MaxConns-len(r.freeConns)
	return s
}

// sumAt is where a slot has a checksum of what is before it; 0 says that the slot is free.
const sumAt = 44

func seal(s []byte) { le.PutUint32(s[sumAt:], sum(s)) }

func sum(s []byte) uint32 {
	if c := crc32.ChecksumIEEE(s[:sumAt]); c != 0 {
		return c
	}
	return 1
}

func sealed(s []byte) bool {
	c := le.Uint32(s[sumAt:])
	return c != 0 && c == sum(s)
}

func putAddr(b []byte, a netip.Addr) {
	a16 := a.As16()
	copy(b, a16[:])
}

func addr(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b)).Unmap() }

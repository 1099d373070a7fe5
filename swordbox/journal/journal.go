package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Sizes of the parts in slots and bytes.
const (
	// MaxFlows and MaxConns bound the flows and the connections in a journal.
	MaxFlows = 8192
	MaxConns = 1024
	// MaxRules bounds the text of the rules in bytes.
	MaxRules = 64<<10 - bankHead

	slotLen  = 64
	headLen  = 64
	bankHead = 16
	bankLen  = 64 << 10
	flowsAt  = headLen
	connsAt  = flowsAt + MaxFlows*slotLen
	banksAt  = connsAt + MaxConns*slotLen
	// Size is the size of a journal in bytes.
	Size = banksAt + 2*bankLen
)

// magic begins a journal of this layout.
const magic = "rdmalab switch 1"

// ErrFull is returned if there is no free slot.
var ErrFull = errors.New("the switch's journal of moved flows and connections is full")

// Flow is an entry for a flow with moved requests.
type Flow struct {
	// Slot is the slot of the flow. Former sets it.
	Slot           Slot
	Client, Server netip.Addr
	// ClientQPN is the queue pair that responses go to. ServerQPN is the queue pair that requests
	// go to.
	ClientQPN, ServerQPN wire.QPN
	// Oldest is the PSN of the first unanswered request.
	Oldest wire.PSN
}

// Conn holds what the switch needs to end a connection that it has made.
type Conn struct {
	// Slot is the connection's slot in the journal. Former sets it, and Dial ignores it.
	Slot   Slot
	Server netip.Addr
	// OwnID and ServerID are the communication IDs of the connection at the switch and at the
	// server.
	OwnID, ServerID uint32
	ServerQPN       wire.QPN
}

// Former holds the entries of the former incarnation of the switch.
type Former struct {
	Flows []Flow
	Conns []Conn
}

// Slot names an entry for a flow or a connection. The zero value names none; calls with it have no
// effect.
type Slot int

// Journal is the journal of one switch. A nil Journal accepts all calls and stores nothing.
type Journal struct {
	b         []byte
	freeFlows []Slot
	freeConns []Slot
	bank      int    // the bank that holds the rules
	serial    uint32 // serial number of the rules; 0 means that there are none
	former    Former
	stats     Stats
}

// Stats counts the entries of a journal, and the entries that it refused.
type Stats struct {
	// Flows is at most MaxFlows, Conns at most MaxConns.
	Flows   int    `json:"rows" help:"flows in the journal"`
	Conns   int    `help:"connections of the switch in the journal"`
	Refused uint64 `help:"flows and connections refused because the journal was full"`
}

// Open opens the journal in b, which has Size bytes. If b begins with zeros, the journal is new and
// empty. Other content that is no journal is an error; Format turns b into an empty journal. The
// Journal owns b from then on.
func Open(b []byte) (*Journal, error) {
	if len(b) != Size {
		return nil, fmt.Errorf("journal of %d bytes: want %d", len(b), Size)
	}
	r := &Journal{b: b}
	switch string(b[:len(magic)]) {
	case magic:
	case string(make([]byte, len(magic))):
		copy(b, magic)
	default:
		return nil, errors.New("not a journal of this version of the switch")
	}
	for i := MaxFlows; i > 0; i-- {
		if flow, ok := r.flow(Slot(i)); ok {
			r.former.Flows = append(r.former.Flows, flow)
			continue
		}
		r.freeFlows = append(r.freeFlows, Slot(i))
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

// Format makes b, which has Size bytes, an empty journal.
func Format(b []byte) {
	clear(b)
	copy(b, magic)
}

// Former returns the entries of the former incarnation. Their slots stay in use until EndFlow and
// EndConn free them.
func (r *Journal) Former() Former {
	if r == nil {
		return Former{}
	}
	return r.former
}

func (r *Journal) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	s := r.stats
	s.Flows, s.Conns = MaxFlows-len(r.freeFlows), MaxConns-len(r.freeConns)
	return s
}

// sumAt is the offset of the checksum in a slot. The checksum covers the bytes before it; 0 means
// that the slot is free.
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

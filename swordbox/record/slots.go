package record

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A row's slot. The PSN is behind the checksum, because it changes with every answer; it is stored as a whole.
//
//	 0        16       32          36          40     44    48       52     64
//	+--------+--------+-----------+-----------+------+-----+--------+------+
//	| client | server | clientQPN | serverQPN | 0    | sum | oldest | 0    |
//	+--------+--------+-----------+-----------+------+-----+--------+------+
const (
	rowServer    = 16
	rowClientQPN = 32
	rowServerQPN = 36
	rowOldest    = 48
)

// A connection's slot.
//
//	 0        16      20         24          28     44    48     64
//	+--------+-------+----------+-----------+------+-----+------+
//	| server | ownID | serverID | serverQPN | 0    | sum | 0    |
//	+--------+-------+----------+-----------+------+-----+------+
const (
	connOwnID     = 16
	connServerID  = 20
	connServerQPN = 24
)

var le = binary.LittleEndian

func (r *Record) rowSlot(s Slot) []byte  { return r.slot(rowsAt, s) }
func (r *Record) connSlot(s Slot) []byte { return r.slot(connsAt, s) }

func (r *Record) slot(base int, s Slot) []byte {
	at := base + (int(s)-1)*slotLen
	return r.b[at : at+slotLen : at+slotLen]
}

// Move records a row before its first request is moved. The error is ErrFull.
func (r *Record) Move(row Row) (Slot, error) {
	if r == nil {
		return 0, nil
	}
	s, err := r.take(&r.freeRows)
	if err != nil {
		return 0, err
	}
	b := r.rowSlot(s)
	clear(b)
	putAddr(b, row.Client)
	putAddr(b[rowServer:], row.Server)
	le.PutUint32(b[rowClientQPN:], uint32(row.ClientQPN))
	le.PutUint32(b[rowServerQPN:], uint32(row.ServerQPN))
	le.PutUint32(b[rowOldest:], uint32(row.Oldest))
	seal(b)
	return s, nil
}

// Answered says which request of a row is the oldest one that has no answer. It is called before an answer leaves.
func (r *Record) Answered(s Slot, oldest wire.PSN) {
	if r != nil && s != 0 {
		le.PutUint32(r.rowSlot(s)[rowOldest:], uint32(oldest))
	}
}

// EndRow frees the slot of a row whose connection has ended.
func (r *Record) EndRow(s Slot) {
	if r != nil && s != 0 {
		r.free(&r.freeRows, r.rowSlot(s), s)
	}
}

// Dial records a connection before its first packet. The error is ErrFull.
func (r *Record) Dial(c Conn) (Slot, error) {
	if r == nil {
		return 0, nil
	}
	s, err := r.take(&r.freeConns)
	if err != nil {
		return 0, err
	}
	b := r.connSlot(s)
	clear(b)
	putAddr(b, c.Server)
	le.PutUint32(b[connOwnID:], c.OwnID)
	le.PutUint32(b[connServerID:], c.ServerID)
	le.PutUint32(b[connServerQPN:], uint32(c.ServerQPN))
	seal(b)
	return s, nil
}

// EndConn frees the slot of a connection that the server knows to have ended.
func (r *Record) EndConn(s Slot) {
	if r != nil && s != 0 {
		r.free(&r.freeConns, r.connSlot(s), s)
	}
}

func (r *Record) take(free *[]Slot) (Slot, error) {
	n := len(*free)
	if n == 0 {
		r.stats.Refused++
		return 0, ErrFull
	}
	s := (*free)[n-1]
	*free = (*free)[:n-1]
	return s, nil
}

// free gives a slot back, once.
func (r *Record) free(list *[]Slot, b []byte, s Slot) {
	if le.Uint32(b[sumAt:]) == 0 {
		return
	}
	le.PutUint32(b[sumAt:], 0)
	*list = append(*list, s)
}

// row reads a slot of a former life.
func (r *Record) row(s Slot) (Row, bool) {
	b := r.rowSlot(s)
	if !sealed(b) {
		return Row{}, false
	}
	row := Row{
		Slot: s, Client: addr(b), Server: addr(b[rowServer:]),
		ClientQPN: qpn(b[rowClientQPN:]), ServerQPN: qpn(b[rowServerQPN:]), Oldest: wire.PSN(le.Uint32(b[rowOldest:])).Add(0),
	}
	return row, true
}

func (r *Record) conn(s Slot) (Conn, bool) {
	b := r.connSlot(s)
	if !sealed(b) {
		return Conn{}, false
	}
	return Conn{Slot: s, Server: addr(b), OwnID: le.Uint32(b[connOwnID:]), ServerID: le.Uint32(b[connServerID:]), ServerQPN: qpn(b[connServerQPN:])}, true
}

func qpn(b []byte) wire.QPN { return wire.QPN(le.Uint32(b) & 0xffffff) }

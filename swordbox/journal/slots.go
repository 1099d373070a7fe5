package journal

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The slot of a flow. The PSN is behind the checksum, because it changes with every response; one
// store writes it.
//
//	 0        16       32          36          40     44    48       52     64
//	+--------+--------+-----------+-----------+------+-----+--------+------+
//	| client | server | clientQPN | serverQPN | 0    | sum | oldest | 0    |
//	+--------+--------+-----------+-----------+------+-----+--------+------+
const (
	flowServer    = 16
	flowClientQPN = 32
	flowServerQPN = 36
	flowOldest    = 48
)

// The slot of a connection.
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

func (r *Journal) flowSlot(s Slot) []byte { return r.slot(flowsAt, s) }
func (r *Journal) connSlot(s Slot) []byte { return r.slot(connsAt, s) }

func (r *Journal) slot(base int, s Slot) []byte {
	at := base + (int(s)-1)*slotLen
	return r.b[at : at+slotLen : at+slotLen]
}

// Move records a flow. It is called before the first request of the flow is moved. The only error
// is ErrFull.
func (r *Journal) Move(flow Flow) (Slot, error) {
	if r == nil {
		return 0, nil
	}
	s, err := r.take(&r.freeFlows)
	if err != nil {
		return 0, err
	}
	b := r.flowSlot(s)
	clear(b)
	putAddr(b, flow.Client)
	putAddr(b[flowServer:], flow.Server)
	le.PutUint32(b[flowClientQPN:], uint32(flow.ClientQPN))
	le.PutUint32(b[flowServerQPN:], uint32(flow.ServerQPN))
	le.PutUint32(b[flowOldest:], uint32(flow.Oldest))
	seal(b)
	return s, nil
}

// Answered stores the PSN of the oldest unanswered request of a flow. It is called before a
// response is sent.
func (r *Journal) Answered(s Slot, oldest wire.PSN) {
	if r != nil && s != 0 {
		le.PutUint32(r.flowSlot(s)[flowOldest:], uint32(oldest))
	}
}

// EndFlow frees the slot of a flow that the next incarnation of the switch need not know, for example
// because its connection has ended.
func (r *Journal) EndFlow(s Slot) {
	if r != nil && s != 0 {
		r.free(&r.freeFlows, r.flowSlot(s), s)
	}
}

// Dial records a connection. It is called before the first packet of the connection. The only error
// is ErrFull.
func (r *Journal) Dial(c Conn) (Slot, error) {
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

// EndConn frees the slot of a connection. It is called when the server can execute no more requests
// of the connection.
func (r *Journal) EndConn(s Slot) {
	if r != nil && s != 0 {
		r.free(&r.freeConns, r.connSlot(s), s)
	}
}

func (r *Journal) take(free *[]Slot) (Slot, error) {
	n := len(*free)
	if n == 0 {
		r.stats.Refused++
		return 0, ErrFull
	}
	s := (*free)[n-1]
	*free = (*free)[:n-1]
	return s, nil
}

// free frees slot s, whose bytes are b, if it is in use. It adds s to list, the list of free slots.
func (r *Journal) free(list *[]Slot, b []byte, s Slot) {
	if le.Uint32(b[sumAt:]) == 0 {
		return
	}
	le.PutUint32(b[sumAt:], 0)
	*list = append(*list, s)
}

// flow reads the slot of a flow. The bool is false if the slot is free.
func (r *Journal) flow(s Slot) (Flow, bool) {
	b := r.flowSlot(s)
	if !sealed(b) {
		return Flow{}, false
	}
	flow := Flow{
		Slot: s, Client: addr(b), Server: addr(b[flowServer:]),
		ClientQPN: qpn(b[flowClientQPN:]), ServerQPN: qpn(b[flowServerQPN:]),
		Oldest: wire.PSN(le.Uint32(b[flowOldest:])).Add(0),
	}
	return flow, true
}

func (r *Journal) conn(s Slot) (Conn, bool) {
	b := r.connSlot(s)
	if !sealed(b) {
		return Conn{}, false
	}
	return Conn{
		Slot: s, Server: addr(b), OwnID: le.Uint32(b[connOwnID:]), ServerID: le.Uint32(b[connServerID:]),
		ServerQPN: qpn(b[connServerQPN:]),
	}, true
}

func qpn(b []byte) wire.QPN { return wire.QPN(le.Uint32(b) & 0xffffff) }

package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// Service is the name under which the metadata server's connection manager listens.
const Service = "clover"

// Sizes in bytes, and limits, of a message.
const (
	MaxRequest = requestHead + partLen + MaxBatch*recordLen
	MaxAnswer  = 2048
	// MaxBatch is the largest number of locations in an answer and of records in a request.
	MaxBatch = 64
	// AnswerSlots is how many answers to a client may be in flight. Each has a slot of MaxAnswer
	// bytes in the client's memory. The slots lie one after the other from Request.BufAddr on. The
	// lowest bit of Request.Seq is the number of the slot.
	AnswerSlots = 2

	requestHead = 28
	answerHead  = 20
)

// Op is the kind of a request.
type Op uint8

// Requests.
const (
	// Hello introduces a client. The answer has a Welcome.
	OpHello Op = iota + 1
	// Alloc asks for N nodes of Class, from server Near if that server has free ones. The answer
	// has their locations.
	OpAlloc
	// Query asks for the chain of Key. The answer has the newest node of this chain that the server
	// knows, and the slot of the key. A client that does not know whether its append has succeeded
	// sets At to its new node: the answer is then Done if the server has seen this node in a chain.
	OpQuery
	// Open makes a new key known. At is its first node, which the client has written. The answer
	// has the slot.
	OpOpen
	// GC reports appends. The body has N records. With Want it also asks for that many nodes of
	// Class, from server Near if that is not 0. The answer has as many as are free at once.
	OpGC
	// Beat renews the lease and confirms the request's epoch.
	OpBeat
	// Return gives back N nodes that the client has not used.
	OpReturn
	// Bye ends the client's lease.
	OpBye
	// Stat asks for the server's counters. The server need not know the client.
	OpStat
	// Reports reports appends of several clients of a process. The body has Parts. The request
	// neither renews the leases of these clients nor confirms an epoch.
	OpReports
)

// opEnd is one more than the number of the last request.
const opEnd = int(OpReports) + 1

var opNames = [opEnd]string{
	OpHello: "hello", OpAlloc: "alloc", OpQuery: "query", OpOpen: "open", OpGC: "gc", OpBeat: "beat", OpReturn: "return",
	OpBye: "bye", OpStat: "stat", OpReports: "reports",
}

func (o Op) String() string {
	if int(o) < opEnd && opNames[o] != "" {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Status is the outcome of a request.
type Status uint16

// Outcomes.
const (
	OK Status = iota
	// NotFound answers a Query of a key that does not exist, and Exists an Open of a key that
	// exists. Full means that there is no free node (Alloc), or no slot for another key (Open).
	NotFound
	Exists
	Full
	// Lost means that the key's value was in memory that is lost.
	Lost
	// Unknown means that the server does not know the client, or does not know it any more. The
	// client must send Hello again.
	Unknown
	// Refused means that the server cannot do what the request asks.
	Refused
	// Busy means that the client should try again after a moment.
	Busy
	// Done answers an Open if an earlier copy of this request was executed, and the key has been
	// deleted since. It answers a Query if the node At has been linked.
	Done
)

var statusNames = [...]string{"ok", "not found", "exists", "full", "lost", "unknown client", "refused", "busy", "done before"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint16(s))
}

// After reports whether a client has sent the request with sequence number seq after the request
// with sequence number `than`. The numbers have 31 bits and wrap around. The lowest bit is the slot
// and does not count.
func After(seq, than uint32) bool { return int32(seq&^1-than&^1) > 0 }

// Record is an append that a client made. New is the node that it appended. Heard is the highest
// Answer.Clock that the client had received before it posted the first compare-and-swap for New:
// every append that the server had been told of by then comes before New in the chain.
type Record struct {
	Key   uint64
	Heard uint64
	New   layout.Location
	// Deleted is true if New is a tombstone.
	Deleted bool
}

const (
	recordLen = 8 + 8 + 8
	ownerLen  = 4
	wantLen   = 2 + 2
	partLen   = 4 + 4 + 4
)

// Part has the appends of one client in a Reports request.
type Part struct {
	// Client is the number of the client. A client gets another number with each Hello, and no two
	// incarnations of the metadata server give out the same number. So a part belongs to one
	// incarnation of the client and of the server.
	Client uint32
	// Seq numbers the parts of a client from 1 on, in the order of its appends.
	Seq     uint32
	Records []Record
}

// Len returns how many bytes the part has in a request.
func (p *Part) Len() int { return partLen + len(p.Records)*recordLen }

// MaxParts is how many bytes all parts of a request may have together.
const MaxParts = MaxRequest - requestHead

// Request is a client's request to the metadata server.
type Request struct {
	// Seq is the sequence number of the request, with the slot for the answer in its lowest bit. A
	// client numbers its requests in the order in which it sends them, also over several
	// connections. Class is a field of Alloc. N is the number of nodes that an Alloc asks for, or
	// the number of Records of a GC or Return. Client is the client's number, Epoch the epoch that
	// it confirms.
	Seq    uint32
	Op     Op
	Class  layout.Class
	N      int
	Client uint32
	Epoch  uint32
	// BufAddr and BufRKey are the address and the key of the client's first answer slot.
	BufAddr uint64
	BufRKey uint32
	// Quiet, in Hello and Bye, is true if none of the client's requests to memory servers is in
	// flight, and the client no longer uses the nodes and locations that it got under the number
	// Client.
	Quiet bool
	// Owner, in Hello, is the owner number under which the client has connected to memory servers;
	// 0 means none.
	Owner uint32
	// Near, in Alloc and GC, is the memory server whose nodes the client wants, counted from 1; 0
	// means any. Want, in GC, is how many nodes of Class the client wants.
	Near, Want int
	// Tombstone, in Alloc, is true if the client wants the nodes for tombstones. The server
	// reserves some nodes for them, so that a key can be deleted when the store is full.
	Tombstone bool
	// Key and At are fields of Query and Open.
	Key uint64
	At  layout.Location
	// Records is a field of GC and Return. Return uses only New.
	Records [MaxBatch]Record
	// Parts is a field of Reports.
	Parts []Part
}

// ErrMessage means that the bytes are not a message.
var ErrMessage = errors.New("malformed message")

func (r *Request) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, r.Seq)
	b = append(b, byte(r.Op), byte(r.Class))
	n := uint16(r.N)
	if r.Quiet && (r.Op == OpHello || r.Op == OpBye) {
		n = 1
	}
	if r.Tombstone && r.Op == OpAlloc {
		n |= tombstoneBit
	}
	if r.Op == OpAlloc {
		n |= uint16(r.Near) << nearShift
	}
	b = le.AppendUint16(b, n)
	b = le.AppendUint32(b, r.Client)
	b = le.AppendUint32(b, r.Epoch)
	b = le.AppendUint64(b, r.BufAddr)
	b = le.AppendUint32(b, r.BufRKey)
	switch r.Op {
	case OpQuery, OpOpen:
		b = le.AppendUint64(b, r.Key)
		b = le.AppendUint64(b, uint64(r.At.Word()))
	case OpGC, OpReturn:
		if r.Op == OpGC {
			b = le.AppendUint16(le.AppendUint16(b, uint16(r.Want)), uint16(r.Near))
		}
		for i := range r.Records[:r.N] {
			b = r.Records[i].appendTo(b)
		}
	case OpHello:
		b = le.AppendUint32(b, r.Owner)
	case OpReports:
		for i := range r.Parts {
			b = r.Parts[i].appendTo(b)
		}
	case OpAlloc, OpBeat, OpBye, OpStat:
	}
	return b
}

// In an encoded Alloc, the field n has three values: N in the lowest 8 bits, tombstoneBit if
// Tombstone is true, and Near from bit nearShift on.
const (
	tombstoneBit = 1 << 8
	nearShift    = 9
)

// deletedBit marks a tombstone in a record's New. No location uses this bit.
const deletedBit = 1

func (c *Record) appendTo(b []byte) []byte {
	w := uint64(c.New.Word())
	if c.Deleted {
		w |= deletedBit
	}
	b = binary.LittleEndian.AppendUint64(b, c.Key)
	b = binary.LittleEndian.AppendUint64(b, c.Heard)
	return binary.LittleEndian.AppendUint64(b, w)
}

func (c *Record) parse(b []byte) error {
	le := binary.LittleEndian
	w := le.Uint64(b[16:])
	*c = Record{Key: le.Uint64(b), Heard: le.Uint64(b[8:]), Deleted: w&deletedBit != 0}
	var ok bool
	if c.New, ok = layout.LocationOf(layout.Word(w &^ deletedBit)); !ok {
		return ErrMessage
	}
	return nil
}

func (p *Part) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, p.Client)
	b = binary.LittleEndian.AppendUint32(b, p.Seq)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Records)))
	for i := range p.Records {
		b = p.Records[i].appendTo(b)
	}
	return b
}

func parseParts(b []byte) (list []Part, err error) {
	for len(b) > 0 {
		if len(b) < partLen {
			return nil, ErrMessage
		}
		p := Part{Client: binary.LittleEndian.Uint32(b), Seq: binary.LittleEndian.Uint32(b[4:])}
		n := binary.LittleEndian.Uint32(b[8:])
		if b = b[partLen:]; n == 0 || n > MaxBatch || len(b) < int(n)*recordLen {
			return nil, ErrMessage
		}
		p.Records = make([]Record, n)
		for i := range p.Records {
			if err := p.Records[i].parse(b); err != nil {
				return nil, err
			}
			b = b[recordLen:]
		}
		list = append(list, p)
	}
	if list == nil {
		return nil, ErrMessage
	}
	return list, nil
}

// Parse parses a request into r. It overwrites all of r, except elements of Records that the
// request does not have. It returns ErrMessage if b is no request.
func (r *Request) Parse(b []byte) error {
	if len(b) < requestHead {
		return ErrMessage
	}
	le := binary.LittleEndian
	r.Seq, r.Op, r.Class = le.Uint32(b), Op(b[4]), layout.Class(b[5])
	r.N, r.Client, r.Epoch = int(le.Uint16(b[6:])), le.Uint32(b[8:]), le.Uint32(b[12:])
	r.BufAddr, r.BufRKey, r.Key, r.At, r.Owner, r.Parts = le.Uint64(b[16:]), le.Uint32(b[24:]), 0, layout.Location{}, 0, nil
	r.Near, r.Want = 0, 0
	if r.Op == OpAlloc {
		r.Near = r.N >> nearShift
		r.N &= 1<<nearShift - 1
	}
	if r.Tombstone = r.Op == OpAlloc && r.N&tombstoneBit != 0; r.Tombstone {
		r.N &^= tombstoneBit
	}
	if r.Op == 0 || int(r.Op) >= opEnd || r.Class >= layout.Classes || r.N > MaxBatch {
		return ErrMessage
	}
	if r.Quiet = (r.Op == OpHello || r.Op == OpBye) && r.N == 1; r.Quiet {
		r.N = 0
	}
	body := b[requestHead:]
	want := 0
	switch r.Op {
	case OpQuery, OpOpen:
		want = 16
	case OpGC:
		want = wantLen + r.N*recordLen
	case OpReturn:
		want = r.N * recordLen
	case OpHello:
		want = ownerLen
	case OpReports:
		want = len(body)
	case OpAlloc, OpBeat, OpBye, OpStat:
	}
	if len(body) != want {
		return ErrMessage
	}
	switch r.Op {
	case OpQuery, OpOpen:
		r.Key = le.Uint64(body)
		w := layout.Word(le.Uint64(body[8:]))
		var ok bool
		if r.At, ok = layout.LocationOf(w); !ok && (w != 0 || r.Op == OpOpen) {
			return ErrMessage
		}
	case OpGC, OpReturn:
		if r.Op == OpGC {
			r.Want, r.Near = int(le.Uint16(body)), int(le.Uint16(body[2:]))
			if body = body[wantLen:]; r.Want > MaxBatch {
				return ErrMessage
			}
		}
		for i := range r.N {
			if err := r.Records[i].parse(body[i*recordLen:]); err != nil {
				return err
			}
		}
	case OpHello:
		r.Owner = le.Uint32(body)
	case OpReports:
		var err error
		r.Parts, err = parseParts(body)
		return err
	case OpAlloc, OpBeat, OpBye, OpStat:
	}
	return nil
}

package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// Service is the metadata server's name for the connection manager.
const Service = "clover"

// Sizes in bytes and bounds of a message.
const (
	MaxRequest = 512
	MaxAnswer  = 2048
	// MaxBatch is the most locations of an answer and records of a request.
	MaxBatch = 16
	// AnswerSlots are the answers to a client that may be under way. The lowest bit of Seq chooses one: they lie behind
	// each other at BufAddr, MaxAnswer bytes each.
	AnswerSlots = 2

	requestHead = 28
	answerHead  = 12
)

// Op is what a request asks for.
type Op uint8

// Requests.
const (
	// Hello introduces a client; the answer has a Welcome.
	OpHello Op = iota + 1
	// Alloc asks for N entries of Class; the answer has their locations.
	OpAlloc
	// Query asks where Key is; the answer has the newest known location and the slot. With At it is Done if that node, which the
	// client was given, has been met in a chain.
	OpQuery
	// Open makes Key known, whose first node At is written; the answer has the slot.
	OpOpen
	// GC reports appends; the body has N records.
	OpGC
	// Beat says that the client lives and has taken note of its epoch.
	OpBeat
	// Return gives back N entries that were not used.
	OpReturn
	// Bye ends the client.
	OpBye
	// Stat asks for the server's counters; the client need not be known.
	OpStat
)

// opEnd is behind the last request.
const opEnd = int(OpStat) + 1

var opNames = [opEnd]string{
	OpHello: "hello", OpAlloc: "alloc", OpQuery: "query", OpOpen: "open", OpGC: "gc", OpBeat: "beat", OpReturn: "return",
	OpBye: "bye", OpStat: "stat",
}

// String is the name of the request.
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
	NotFound
	Exists
	Full
	// Lost: the key's value was in memory that is gone.
	Lost
	// Unknown: the server does not know the client (any more); it must say hello again.
	Unknown
	// Refused: the request makes no sense.
	Refused
	// Busy: try again in a moment.
	Busy
	// Done: an Open that came again was carried out the first time, and the key has been deleted or written since; of Query, that
	// the node At has been linked.
	Done
)

var statusNames = [...]string{"ok", "not found", "exists", "full", "lost", "unknown client", "refused", "busy", "done before"}

// String is the outcome in words.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint16(s))
}

// Record is an append that a client made: the node that it reached by its compare-and-swap, and its own.
type Record struct {
	Key      uint64
	Old, New layout.Location
	// Deleted says that New is a tombstone.
	Deleted bool
}

const recordLen = 8 + 8 + 8

// Request is a client's.
type Request struct {
	Seq    uint32
	Op     Op
	Class  layout.Class
	N      int
	Client uint32
	Epoch  uint32
	// Where the answer goes: the first of the client's answer slots.
	BufAddr uint64
	BufRKey uint32
	// Of Query and Open.
	Key uint64
	At  layout.Location
	// Of GC, and of Return: the locations of New.
	Records [MaxBatch]Record
}

// ErrMessage says that bytes are no message.
var ErrMessage = errors.New("malformed message")

// AppendTo appends the request to b.
func (r *Request) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, r.Seq)
	b = append(b, byte(r.Op), byte(r.Class))
	b = le.AppendUint16(b, uint16(r.N))
	b = le.AppendUint32(b, r.Client)
	b = le.AppendUint32(b, r.Epoch)
	b = le.AppendUint64(b, r.BufAddr)
	b = le.AppendUint32(b, r.BufRKey)
	switch r.Op {
	case OpQuery, OpOpen:
		b = le.AppendUint64(b, r.Key)
		b = le.AppendUint64(b, uint64(r.At.Word()))
	case OpGC, OpReturn:
		for i := range r.Records[:r.N] {
			b = r.Records[i].appendTo(b)
		}
	case OpHello, OpAlloc, OpBeat, OpBye, OpStat:
	}
	return b
}

// deletedBit marks a tombstone in a record's New, in a bit that no location uses.
const deletedBit = 1

func (c *Record) appendTo(b []byte) []byte {
	w := uint64(c.New.Word())
	if c.Deleted {
		w |= deletedBit
	}
	b = binary.LittleEndian.AppendUint64(b, c.Key)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Old.Word()))
	return binary.LittleEndian.AppendUint64(b, w)
}

func (c *Record) parse(b []byte) error {
	le := binary.LittleEndian
	w := le.Uint64(b[16:])
	*c = Record{Key: le.Uint64(b), Deleted: w&deletedBit != 0}
	var ok, okNew bool
	c.Old, ok = layout.LocationOf(layout.Word(le.Uint64(b[8:])))
	c.New, okNew = layout.LocationOf(layout.Word(w &^ deletedBit))
	if !okNew || !ok && le.Uint64(b[8:]) != 0 {
		return ErrMessage
	}
	return nil
}

// Parse reads a request; everything of r but unused records is overwritten.
func (r *Request) Parse(b []byte) error {
	if len(b) < requestHead {
		return ErrMessage
	}
	le := binary.LittleEndian
	r.Seq, r.Op, r.Class = le.Uint32(b), Op(b[4]), layout.Class(b[5])
	r.N, r.Client, r.Epoch = int(le.Uint16(b[6:])), le.Uint32(b[8:]), le.Uint32(b[12:])
	r.BufAddr, r.BufRKey, r.Key, r.At = le.Uint64(b[16:]), le.Uint32(b[24:]), 0, layout.Location{}
	if r.Op == 0 || int(r.Op) >= opEnd || r.Class >= layout.Classes || r.N > MaxBatch {
		return ErrMessage
	}
	body := b[requestHead:]
	want := 0
	switch r.Op {
	case OpQuery, OpOpen:
		want = 16
	case OpGC, OpReturn:
		want = r.N * recordLen
	case OpHello, OpAlloc, OpBeat, OpBye, OpStat:
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
		for i := range r.N {
			if err := r.Records[i].parse(body[i*recordLen:]); err != nil {
				return err
			}
		}
	case OpHello, OpAlloc, OpBeat, OpBye, OpStat:
	}
	return nil
}

package pdpm

import (
	"encoding/binary"
	"errors"
	"time"
)

// The messages between a client of pDPM-Central and its coordinator. A request is one SEND, its
// answer a WRITE with immediate data (the number of the request) into the client's buffer. Integers
// are little endian. Lengths of fields are in bytes.
//
//	request  seq 4 | op 1 | zeros 3 | patience 8 | key 8 | answer's address 8 | its R_Key 4 | length 4 | value
//	answer   seq 4 | status 1 | trips 1 | waits 1 | zero 1 | length 4 | value
const (
	requestHead = 40
	answerHead  = 12
)

// op is the operation that a client requests from the coordinator.
type op uint8

// Operations. The answer to opHello has a superblock, the answer to opGet has the value.
const (
	opHello op = iota + 1
	opGet
	opPut
	opInsert
	opDelete
	opEnd
)

// changes reports whether the operation changes a key. Such an operation must not be sent again
// when a coordinator may have executed it.
func (o op) changes() bool { return o == opPut || o == opInsert || o == opDelete }

// status is the outcome of an operation.
type status uint8

// Outcomes. With any outcome other than done and doubtful, the operation has changed nothing and
// never will.
const (
	done status = iota
	notFound
	exists
	full
	// lost says that the memory of the key's server was lost.
	lost
	// failed says that the memory server did not answer in time, or that other requests changed the
	// key all the time.
	failed
	// doubtful says that the WRITE of the value was not acknowledged in time.
	doubtful
	// deposed says that another coordinator has taken the table over.
	deposed
	statusEnd
)

// errMessage says that some bytes are not a message of this protocol.
var errMessage = errors.New("malformed message")

// maxPatience is the longest time that a coordinator works on a request.
const maxPatience = time.Minute

// query is a request of a client.
type query struct {
	seq  uint32
	op   op
	key  uint64
	addr uint64 // the address of the client's buffer for the answer
	rkey uint32
	// patience is the time that the coordinator may take.
	patience time.Duration
	value    []byte
}

func (q *query) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, q.seq)
	b = append(b, byte(q.op), 0, 0, 0)
	b = le.AppendUint64(b, uint64(q.patience))
	b = le.AppendUint64(b, q.key)
	b = le.AppendUint64(b, q.addr)
	b = le.AppendUint32(b, q.rkey)
	b = le.AppendUint32(b, uint32(len(q.value)))
	return append(b, q.value...)
}

// parse reads what appendTo wrote. The value is a part of b.
func (q *query) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < requestHead || op(b[4]) == 0 || op(b[4]) >= opEnd || b[5]|b[6]|b[7] != 0 ||
		uint64(le.Uint32(b[36:])) != uint64(len(b)-requestHead) || le.Uint64(b[8:]) > uint64(maxPatience) {
		return errMessage
	}
	*q = query{
		seq: le.Uint32(b), op: op(b[4]), patience: time.Duration(le.Uint64(b[8:])), key: le.Uint64(b[16:]), addr: le.Uint64(b[24:]),
		rkey: le.Uint32(b[32:]), value: b[requestHead:],
	}
	return nil
}

// answer is the coordinator's answer. trips is the number of round trips to memory servers. waits
// is how often the request had to wait for another change of the key, or to read again because of
// one. A message can have at most 255 of each.
type answer struct {
	seq          uint32
	status       status
	trips, waits int
	value        []byte
}

func (a *answer) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, a.seq)
	b = append(b, byte(a.status), byte(min(a.trips, 255)), byte(min(a.waits, 255)), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(a.value)))
	return append(b, a.value...)
}

// parse reads what appendTo wrote at the beginning of b. The value is a part of b.
func (a *answer) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < answerHead || status(b[4]) >= statusEnd || b[7] != 0 || uint64(le.Uint32(b[8:])) > uint64(len(b)-answerHead) {
		return errMessage
	}
	*a = answer{seq: le.Uint32(b), status: status(b[4]), trips: int(b[5]), waits: int(b[6]), value: b[answerHead:][:le.Uint32(b[8:])]}
	return nil
}

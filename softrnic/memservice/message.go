package memservice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/memgrant"
)

// version is the first byte of requests and answers.
const version = memgrant.Version

// kind is the kind of a request. The answer has the same kind, or kindRefused.
type kind uint8

const (
	kindConnect kind = iota + memgrant.Kind
	kindEnd
	kindFence
	kindWho
	kindRetire
	kindRefused
	kindFenceTo
	kindJoin
	kindDisconnect
	kindTake
	kindDisconnectOthers
	kindReserve
)

var kindNames = [...]string{
	kindConnect: "connect", kindEnd: "end", kindFence: "fence", kindWho: "who", kindRetire: "retire", kindRefused: "refused",
	kindFenceTo: "fence to", kindJoin: "join", kindDisconnect: "disconnect", kindTake: "take",
	kindDisconnectOthers: "disconnect others", kindReserve: "reserve",
}

func (k kind) known() bool { return int(k) < len(kindNames) && kindNames[k] != "" }

func (k kind) String() string {
	if k.known() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Lengths of messages and their parts in bytes.
const (
	headerLen    = 2
	ownerLen     = 4
	connectedLen = memgrant.Len
	holderLen    = 21
	// maxWork is the largest length of data for or from a Worker.
	maxWork = 64
	// maxOwn is the largest region for one connection.
	maxOwn = 256 << 20
)

// request is a client's request. Fields that its kind does not have are zero.
type request struct {
	kind kind
	// conn is the connection that the request ends; 0 means none. For connect and join, the service
	// ends this connection before it makes or changes another one.
	conn  uint64
	owner uint32
	// shared is the connection that an owner joins. former are the owners that leave this connection,
	// at most MostFormer.
	shared uint64
	former []uint32
	// bytes is the size of a region for this connection alone; 0 means the shared region.
	bytes uint32
	// The fields of take: the service writes value to a free word in table. number is the number of
	// this request among the owner's requests.
	number uint32
	table  table
	value  uint64
	// work is data for the Worker of the service.
	work []byte
	// silent marks a request without private data. It is not encoded.
	silent bool
}

// fields returns where the values of a request are, in the order of the message; nil for an unknown
// kind. In a connect request they are followed by work, in a join request by former.
func (r *request) fields() []any {
	switch r.kind {
	case kindConnect:
		return []any{&r.owner, &r.conn, &r.bytes}
	case kindJoin:
		return []any{&r.owner, &r.conn, &r.shared}
	case kindTake:
		return []any{&r.owner, &r.number, &r.table.off, &r.table.words, &r.value}
	case kindEnd:
		return []any{&r.conn}
	case kindFence, kindFenceTo, kindDisconnect, kindWho, kindRetire, kindDisconnectOthers, kindReserve:
		return []any{&r.owner}
	default:
		return nil
	}
}

// lengthOf returns the length of values in a message in bytes.
func lengthOf(fields []any) (n int) {
	for _, f := range fields {
		n += binary.Size(f)
	}
	return n
}

// appendAll appends the encoding of values to b.
func appendAll(b []byte, fields ...any) []byte {
	for _, f := range fields {
		b, _ = binary.Append(b, binary.BigEndian, f) // cannot fail: all values have a fixed size
	}
	return b
}

// takeAll decodes values at the beginning of b, which is long enough, and returns the rest of b.
func takeAll(b []byte, fields ...any) []byte {
	for _, f := range fields {
		n, _ := binary.Decode(b, binary.BigEndian, f) // cannot fail: all values have a fixed size
		b = b[n:]
	}
	return b
}

func (r *request) encode() []byte {
	return append(appendAll(appendAll([]byte{version, byte(r.kind)}, r.fields()...), r.former), r.work...)
}

// header checks version and length of a message and returns its kind and the bytes that follow.
func header(b []byte) (kind, []byte, error) {
	if len(b) < headerLen {
		return 0, nil, fmt.Errorf("a message of %d bytes: want at least %d", len(b), headerLen)
	}
	if b[0] != version {
		return 0, nil, fmt.Errorf("version %d of the protocol: this side has version %d; use the same version of rdmalab on both hosts", b[0], version)
	}
	return kind(b[1]), b[headerLen:], nil
}

// parseRequest decodes the private data of a REQ and checks the limits.
func parseRequest(b []byte) (request, error) {
	if len(b) == 0 {
		return request{kind: kindConnect, silent: true}, nil
	}
	k, b, err := header(b)
	if err != nil {
		return request{}, fmt.Errorf("request to a memory service: %w", err)
	}
	r := request{kind: k}
	fields := r.fields()
	if fields == nil {
		return request{}, fmt.Errorf("request to a memory service: unknown %v", k)
	}
	want := lengthOf(fields)
	if k == kindJoin {
		if n := min(MostFormer, max(0, len(b)-want)/ownerLen); n > 0 {
			r.former = make([]uint32, n)
		}
		want += len(r.former) * ownerLen
	}
	if len(b) < want || k != kindConnect && len(b) != want || len(b) > want+maxWork {
		return request{}, fmt.Errorf("request %v to a memory service: %d bytes, want %d", k, len(b), want)
	}
	if work := takeAll(takeAll(b, fields...), r.former); len(work) > 0 {
		r.work = bytes.Clone(work)
	}
	switch {
	case r.bytes > maxOwn:
		return request{}, fmt.Errorf("%d bytes of memory: want at most %d", r.bytes, maxOwn)
	case k == kindTake && (r.table.words > maxTable || r.value == 0 || r.number == 0):
		return request{}, fmt.Errorf("request %v to a memory service: number %d, a table of %d words, value %d; want at most %d words, and a number and a value other than 0",
			k, r.number, r.table.words, r.value, maxTable)
	}
	if r.owner == 0 && (k == kindTake || k == kindFence || k == kindDisconnect || k == kindWho || k == kindJoin || k == kindDisconnectOthers) {
		return request{}, errors.New("owner 0 stands for no owner: want 1 or more")
	}
	return r, nil
}

// refusal is the code of the reason why the service refuses a request.
type refusal uint8

const (
	// refusedFenced: the owner was fenced or retired.
	refusedFenced refusal = iota + 1
	// refusedOther: the reason is in the text of the rejection.
	refusedOther
	// refusedFull: no word of the table is free.
	refusedFull
	// refusedGone: the connection to join has ended.
	refusedGone
)

// refusals has the errors of those refusals that programs must distinguish.
var refusals = map[refusal]error{refusedFenced: ErrFenced, refusedFull: ErrFull, refusedGone: ErrGone}

// answer is the answer of the service to a request. Fields that its kind does not have are zero.
type answer struct {
	kind   kind
	memory Memory // result of a connect request
	holder Holder // result of a request of kind who
	// owner is the number of an owner, the result of three kinds of requests. For retire it is the
	// largest number that is fenced now. For reserve and disconnect others it is the largest number
	// under which an owner had connected, or that was retired, before the request.
	owner uint32
	index uint32  // result of a take request
	code  refusal // reason, in an answer that refuses the request
}

// fields returns where the values of an answer are, in the order of the message. The answers to
// requests of the kinds connect and who have formats of their own.
func (a *answer) fields() []any {
	switch a.kind {
	case kindRetire, kindDisconnectOthers, kindReserve:
		return []any{&a.owner}
	case kindTake:
		return []any{&a.index}
	case kindRefused:
		return []any{&a.code}
	default:
		return nil
	}
}

// Flag in the answer to a who request: the owner is fenced.
const holderFenced = 1

// encode returns the private data of the REP or REJ.
func (a *answer) encode() []byte {
	b := []byte{version, byte(a.kind)}
	switch a.kind {
	case kindConnect:
		return append(a.memory.Grant.AppendTo(b), a.memory.Work...)
	case kindWho:
		var flags byte
		if a.holder.Fenced {
			flags |= holderFenced
		}
		var addr [16]byte // zero: no address
		if peer, err := netip.ParseAddr(a.holder.Peer); err == nil {
			addr = peer.As16()
		}
		return appendAll(b, flags, uint32(a.holder.QPs), addr)
	default:
		return appendAll(b, a.fields()...)
	}
}

// parseAnswer decodes the private data of a REP or REJ.
func parseAnswer(b []byte) (answer, error) {
	k, b, err := header(b)
	if err != nil {
		return answer{}, fmt.Errorf("answer of a memory service: %w", err)
	}
	if !k.known() {
		return answer{}, fmt.Errorf("answer of a memory service: unknown %v", k)
	}
	a := answer{kind: k}
	want := map[kind]int{kindConnect: connectedLen, kindWho: holderLen}[k] + lengthOf(a.fields())
	if len(b) < want || k != kindConnect && len(b) != want || len(b) > want+maxWork {
		return answer{}, fmt.Errorf("answer %v of a memory service: %d bytes, want %d", k, len(b), want)
	}
	switch k {
	case kindConnect:
		if err := a.memory.Grant.Parse(b); err != nil {
			return answer{}, err
		}
		if len(b) > connectedLen {
			a.memory.Work = bytes.Clone(b[connectedLen:])
		}
	case kindWho:
		a.holder.Fenced = b[0]&holderFenced != 0
		if a.holder.QPs = int(binary.BigEndian.Uint32(b[1:])); a.holder.QPs > maxPassive {
			return answer{}, fmt.Errorf("answer %v of a memory service: %d connections, at most %d are possible", k, a.holder.QPs, maxPassive)
		}
		if peer := netip.AddrFrom16([16]byte(b[5:])); !peer.IsUnspecified() {
			a.holder.Peer = peer.Unmap().String()
		}
	default:
		takeAll(b, a.fields()...)
	}
	return a, nil
}

// Region is memory that a peer may access.
type Region = memgrant.Region

package memservice

import (
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

// String returns the name of the kind, for errors.
func (k kind) String() string {
	switch k {
	case kindConnect:
		return "connect"
	case kindEnd:
		return "end"
	case kindFence:
		return "fence"
	case kindWho:
		return "who"
	case kindRetire:
		return "retire"
	case kindRefused:
		return "refused"
	case kindFenceTo:
		return "fence to"
	case kindJoin:
		return "join"
	case kindDisconnect:
		return "disconnect"
	case kindTake:
		return "take"
	case kindDisconnectOthers:
		return "disconnect others"
	case kindReserve:
		return "reserve"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Lengths of messages and their parts in bytes.
const (
	headerLen    = 2
	connectLen   = 16
	joinLen      = 20 // followed by ownerLen bytes for each former owner
	ownerLen     = 4
	takeLen      = 28
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
	// ends this connection before it does anything else.
	conn  uint64
	owner uint32
	// shared is the connection that an owner joins. former are the owners that leave this connection,
	// at most MostFormer.
	shared uint64
	former []uint32
	// bytes is the size of a region for this connection alone; 0 means the shared region.
	bytes int
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

// encode returns the private data of the request.
func (r *request) encode() []byte {
	b := []byte{version, byte(r.kind)}
	switch r.kind {
	case kindConnect:
		b = binary.BigEndian.AppendUint32(b, r.owner)
		b = binary.BigEndian.AppendUint64(b, r.conn)
		b = binary.BigEndian.AppendUint32(b, uint32(r.bytes))
		return append(b, r.work...)
	case kindJoin:
		b = binary.BigEndian.AppendUint32(b, r.owner)
		b = binary.BigEndian.AppendUint64(b, r.conn)
		b = binary.BigEndian.AppendUint64(b, r.shared)
		for _, id := range r.former {
			b = binary.BigEndian.AppendUint32(b, id)
		}
		return b
	case kindTake:
		b = binary.BigEndian.AppendUint32(b, r.owner)
		b = binary.BigEndian.AppendUint32(b, r.number)
		b = binary.BigEndian.AppendUint64(b, r.table.off)
		b = binary.BigEndian.AppendUint32(b, uint32(r.table.words))
		return binary.BigEndian.AppendUint64(b, r.value)
	case kindEnd:
		return binary.BigEndian.AppendUint64(b, r.conn)
	default:
		return binary.BigEndian.AppendUint32(b, r.owner)
	}
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
	r, want := request{kind: k}, 4
	switch k {
	case kindConnect:
		want = connectLen
	case kindEnd:
		want = 8
	case kindJoin:
		former := min(MostFormer, max(0, len(b)-joinLen)/ownerLen)
		want = joinLen + former*ownerLen
	case kindTake:
		want = takeLen
	case kindFence, kindFenceTo, kindDisconnect, kindWho, kindRetire, kindDisconnectOthers, kindReserve:
	default:
		return request{}, fmt.Errorf("request to a memory service: unknown %v", k)
	}
	if len(b) < want || k != kindConnect && len(b) != want || len(b) > want+maxWork {
		return request{}, fmt.Errorf("request %v to a memory service: %d bytes, want %d", k, len(b), want)
	}
	switch k {
	case kindConnect:
		n := binary.BigEndian.Uint32(b[12:])
		if n > maxOwn {
			return request{}, fmt.Errorf("%d bytes of memory: want at most %d", n, maxOwn)
		}
		r.owner, r.conn, r.bytes = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:]), int(n)
		if len(b) > connectLen {
			r.work = append([]byte(nil), b[connectLen:]...)
		}
	case kindJoin:
		r.owner, r.conn, r.shared = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:]), binary.BigEndian.Uint64(b[12:])
		for b = b[joinLen:]; len(b) > 0; b = b[ownerLen:] {
			r.former = append(r.former, binary.BigEndian.Uint32(b))
		}
	case kindTake:
		r.owner, r.number, r.value = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[20:])
		r.table = table{binary.BigEndian.Uint64(b[8:]), int(binary.BigEndian.Uint32(b[16:]))}
		if r.table.words > maxTable || r.value == 0 || r.number == 0 {
			return request{}, fmt.Errorf("request %v to a memory service: number %d, a table of %d words, value %d; want at most %d words, and a number and a value other than 0",
				k, r.number, r.table.words, r.value, maxTable)
		}
	case kindEnd:
		r.conn = binary.BigEndian.Uint64(b)
	default:
		r.owner = binary.BigEndian.Uint32(b)
	}
	if r.owner == 0 && (k == kindTake || k == kindFence || k == kindDisconnect || k == kindWho || k == kindJoin || k == kindDisconnectOthers) {
		return request{}, errors.New("owner 0 stands for no owner: want 1 or more")
	}
	return r, nil
}

// refusal is the reason of a refusal, if programs must distinguish it from others.
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

// answer is the answer of the service to a request. Fields that its kind does not have are zero.
type answer struct {
	kind   kind
	memory Memory  // result of a connect request
	holder Holder  // result of a who request
	owner  uint32  // largest owner: of retire, of those that are fenced now; of reserve and disconnect others, of those that had connected or were retired
	index  uint32  // result of a take request
	code   refusal // reason, in an answer that refuses the request
}

// Flag in the answer to a who request: the owner is fenced.
const holderFenced = 1

// encode returns the private data of the REP or REJ.
func (a *answer) encode() []byte {
	b := []byte{version, byte(a.kind)}
	switch a.kind {
	case kindConnect:
		m := &a.memory
		g := memgrant.Grant{Conn: m.Conn, Boot: m.Boot, Region: m.Region, Locks: m.Locks}
		b = append(g.AppendTo(b), m.Work...)
	case kindWho:
		var flags byte
		if a.holder.Fenced {
			flags |= holderFenced
		}
		b = binary.BigEndian.AppendUint32(append(b, flags), uint32(a.holder.QPs))
		var addr [16]byte // zero: no address
		if peer, err := netip.ParseAddr(a.holder.Peer); err == nil {
			addr = peer.As16()
		}
		b = append(b, addr[:]...)
	case kindRetire, kindDisconnectOthers, kindReserve:
		b = binary.BigEndian.AppendUint32(b, a.owner)
	case kindTake:
		b = binary.BigEndian.AppendUint32(b, a.index)
	case kindRefused:
		b = append(b, byte(a.code))
	default:
	}
	return b
}

// parseAnswer decodes the private data of a REP or REJ.
func parseAnswer(b []byte) (answer, error) {
	k, b, err := header(b)
	if err != nil {
		return answer{}, fmt.Errorf("answer of a memory service: %w", err)
	}
	lengths := map[kind]int{kindConnect: connectedLen, kindEnd: 0, kindFence: 0, kindFenceTo: 0, kindJoin: 0, kindDisconnect: 0, kindWho: holderLen, kindRetire: 4, kindRefused: 1, kindTake: 4, kindDisconnectOthers: 4, kindReserve: 4}
	want, known := lengths[k]
	if !known {
		return answer{}, fmt.Errorf("answer of a memory service: unknown %v", k)
	}
	if len(b) < want || k != kindConnect && len(b) != want || len(b) > want+maxWork {
		return answer{}, fmt.Errorf("answer %v of a memory service: %d bytes, want %d", k, len(b), want)
	}
	a := answer{kind: k}
	switch k {
	case kindConnect:
		m := &a.memory
		var g memgrant.Grant
		if err := g.Parse(b); err != nil {
			return answer{}, err
		}
		m.Conn, m.Boot, m.Region, m.Locks = g.Conn, g.Boot, g.Region, g.Locks
		if len(b) > connectedLen {
			m.Work = append([]byte(nil), b[connectedLen:]...)
		}
	case kindWho:
		a.holder.Fenced = b[0]&holderFenced != 0
		if a.holder.QPs = int(binary.BigEndian.Uint32(b[1:])); a.holder.QPs > maxPassive {
			return answer{}, fmt.Errorf("answer %v of a memory service: %d connections, at most %d are possible", k, a.holder.QPs, maxPassive)
		}
		if peer := netip.AddrFrom16([16]byte(b[5:])); !peer.IsUnspecified() {
			a.holder.Peer = peer.Unmap().String()
		}
	case kindRetire, kindDisconnectOthers, kindReserve:
		a.owner = binary.BigEndian.Uint32(b)
	case kindTake:
		a.index = binary.BigEndian.Uint32(b)
	case kindRefused:
		a.code = refusal(b[0])
	default:
	}
	return a, nil
}

// Region is memory that a peer may access.
type Region = memgrant.Region

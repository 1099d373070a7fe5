package kvcs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/store/kv"
)

// UDPPort is the UDP port of coordinator and servers.
const UDPPort = 4793

type kind uint8

// Messages, with the fields that they use.
const (
	// Between a client and the coordinator.
	msgHello     kind = iota + 1 // number: the client's clock; region: the client's PID
	msgRenew                     // id: the session; number: the client's clock
	msgView                      // id: the session; number: that of the hello or renew; body: a view
	msgForgotten                 // id: a session that the coordinator does not have
	msgChange                    // id: the session; number: that of the change; op; key; body: the value
	msgOutcome                   // id: the session; number: that of the change; op: a result
	// Between a server and the coordinator. id is the server's instance.
	msgJoin     // region: the ID of its region; body: the region's key
	msgRestart  // the coordinator does not use this instance any more
	msgCopy     // number: log position of the copy; region: length of the copy; at: an offset; body: the bytes at the offset
	msgRecord   // number: the position; op: the step; key; body: the value
	msgProgress // number: the last position that was executed; at: how many bytes were copied
)

// message is a datagram. The last four bytes are a checksum. store is the number of the store that
// the sender belongs to: a coordinator that starts begins a store with a number of its own. 0 means
// that the sender does not know one.
type message struct {
	kind            kind
	op              uint8
	store           uint64
	id, number, key uint64
	at, region      uint32
	body            []byte
}

const (
	headLen = 42
	sumLen  = 4
	// MaxDatagram is the length of the longest message.
	MaxDatagram = headLen + MaxValue + sumLen
)

func (m *message) encode() []byte {
	b := make([]byte, 0, headLen+len(m.body)+sumLen)
	b = append(b, byte(m.kind), m.op)
	b = binary.LittleEndian.AppendUint64(b, m.id)
	b = binary.LittleEndian.AppendUint64(b, m.number)
	b = binary.LittleEndian.AppendUint64(b, m.key)
	b = binary.LittleEndian.AppendUint32(b, m.at)
	b = binary.LittleEndian.AppendUint32(b, m.region)
	b = binary.LittleEndian.AppendUint64(b, m.store)
	b = append(b, m.body...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// parse reads a message, whose body points into b. It returns false if b is not a message.
func (m *message) parse(b []byte) bool {
	if len(b) < headLen+sumLen || len(b) > MaxDatagram {
		return false
	}
	end := len(b) - sumLen
	if binary.LittleEndian.Uint32(b[end:]) != crc32.ChecksumIEEE(b[:end]) {
		return false
	}
	*m = message{
		kind: kind(b[0]), op: b[1], id: binary.LittleEndian.Uint64(b[2:]), number: binary.LittleEndian.Uint64(b[10:]),
		key: binary.LittleEndian.Uint64(b[18:]), at: binary.LittleEndian.Uint32(b[26:]), region: binary.LittleEndian.Uint32(b[30:]), store: binary.LittleEndian.Uint64(b[34:]),
		body: b[headLen:end],
	}
	return m.kind >= msgHello && m.kind <= msgProgress
}

// results are the outcomes of a change by their number in a message.
var results = []error{nil, kv.ErrNotFound, kv.ErrExists, kv.ErrTooLarge, kv.ErrFull}

func resultOf(err error) uint8 {
	for i, r := range results {
		if errors.Is(err, r) || err == r { //nolint:errorlint // the first one is nil
			return uint8(i)
		}
	}
	panic("kvcs: no number for " + err.Error()) // check returns no other error
}

// Replica is what a client needs to READ a replica.
type Replica struct {
	Addr   netip.Addr
	Region nic.RegionID
	// Key is K_d: the key that is derived from the region's key for this client's READs.
	Key nic.Key
}

// view is what the coordinator tells a client: the replicas, and how long the client may use them.
type view struct {
	epoch    uint64
	lease    time.Duration
	shape    Shape
	replicas []Replica
}

const (
	viewLen    = 28
	replicaLen = 24
	// MaxReplicas bounds the number of servers of a store.
	MaxReplicas = 64
)

func (v *view) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, v.epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(v.lease))
	for _, n := range []int{v.shape.Buckets, v.shape.Cells, v.shape.Value} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for _, r := range v.replicas {
		a := r.Addr.As4()
		b = append(b, a[:]...)
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Region))
		b = append(b, r.Key[:]...)
	}
	return b
}

// parse reads a view. It returns false if b is not a view.
func (v *view) parse(b []byte) bool {
	if len(b) < viewLen || (len(b)-viewLen)%replicaLen != 0 || (len(b)-viewLen)/replicaLen > MaxReplicas {
		return false
	}
	word := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	*v = view{
		epoch: binary.LittleEndian.Uint64(b), lease: time.Duration(binary.LittleEndian.Uint64(b[8:])),
		shape: Shape{Buckets: word(16), Cells: word(20), Value: word(24)},
	}
	for b = b[viewLen:]; len(b) > 0; b = b[replicaLen:] {
		v.replicas = append(v.replicas, Replica{
			Addr: netip.AddrFrom4([4]byte(b)), Region: nic.RegionID(binary.LittleEndian.Uint32(b[4:])), Key: nic.Key(b[8:replicaLen]),
		})
	}
	return v.shape.Validate() == nil && v.lease > 0
}

// Packet is a datagram to be sent.
type Packet struct {
	To   netip.AddrPort
	Data []byte
}

// Rekey is a REKEY to be issued, under K_d of the coordinator's process.
type Rekey struct {
	Tag         uint64
	Target      netip.Addr
	Region      nic.RegionID
	Key, NewKey nic.Key
}

// Machine is a Coordinator or a Server. The caller, which has the sockets and the clock, hands it
// datagrams, calls Tick at Deadline, sends the packets in the outbox, and issues the REKEYs there.
type Machine interface {
	Receive(now clock.Time, from netip.AddrPort, b []byte, out *Outbox)
	Tick(now clock.Time, out *Outbox)
	Deadline() clock.Time
}

var _, _ Machine = (*Coordinator)(nil), (*Server)(nil)

// Outbox collects the packets and the REKEYs of a Machine, for its caller to send and issue.
type Outbox struct {
	Packets []Packet
	Rekeys  []Rekey
}

func (o *Outbox) send(to netip.AddrPort, m *message) {
	o.Packets = append(o.Packets, Packet{to, m.encode()})
}

// rekeyOf makes a REKEY that gives the region of member m the key `next`. The process pid at the
// address `from` issues it.
func rekeyOf(tag uint64, m *member, from netip.Addr, pid nic.PID, next nic.Key) Rekey {
	return Rekey{Tag: tag, Target: m.addr.Addr(), Region: m.region, Key: nic.Derive(m.key, from, pid, onerma.Rekey), NewKey: next}
}

package kvcs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// tape is a fuzzer's input, from which a test draws.
type tape []byte

func (t *tape) byte() byte {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return b
}

func (t *tape) below(n int) int { return int(t.byte()) % n }

// bytes draws up to n bytes.
func (t *tape) bytes(n int) []byte {
	n = min(n, len(*t))
	b := (*t)[:n:n]
	*t = (*t)[n:]
	return b
}

var fuzzShape = Shape{Buckets: 2, Cells: 6, Value: 24}

// stranger drives a coordinator with messages that anybody might send: of clients and servers that
// exist, of some that do not, in any order, and with any numbers.
type stranger struct {
	t     *testing.T
	in    tape
	c     *Coordinator
	now   clock.Time
	out   Outbox
	rekey []Rekey
	// owners are the addresses and PIDs that have opened sessions, by session.
	owners map[uint64]netip.AddrPort
	pids   map[uint64]nic.PID
	hello  netip.AddrPort // sender of the hello that is being handled
	// keys are those that servers have named for their regions, and instances the last ones.
	keys      map[netip.Addr]nic.Key
	instances map[netip.Addr]uint64
	asked     map[uint64]uint64 // number of the last change by session
	// own is the server of the first address, which is a real one, and said what it has sent.
	own  *Server
	said Outbox
	// read are the members that clients may read.
	read   map[netip.Addr]uint64
	fenced uint64 // how many had been fenced when read was made
}

// ownAddr is the address of own.
var ownAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), UDPPort)

func newStranger(t *testing.T, in []byte) *stranger {
	s := &stranger{
		t: t, in: in, now: 1, owners: make(map[uint64]netip.AddrPort), pids: make(map[uint64]nic.PID), keys: make(map[netip.Addr]nic.Key),
		instances: make(map[netip.Addr]uint64), asked: make(map[uint64]uint64),
	}
	var err error
	if s.c, err = NewCoordinator(CoordinatorConfig{
		Addr: netip.AddrFrom4([4]byte{10, 0, 0, 1}), PID: 99, Shape: fuzzShape, Rand: rand.New(rand.NewPCG(1, 2)), RTT: 100 * time.Microsecond,
	}); err != nil {
		t.Fatal(err)
	}
	next := byte(0)
	if s.own, err = NewServer(ServerConfig{
		Coordinator: netip.AddrPortFrom(s.c.cfg.Addr, UDPPort), Shape: fuzzShape, Memory: make(Bytes, fuzzShape.Bytes()), First: 1000, RTT: 100 * time.Microsecond,
		Lend: func() (nic.RegionID, nic.Key, error) { next++; return 1, nic.Key{next}, nil },
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// addr draws a sender: a server's address, with its port or another one.
func (s *stranger) addr() netip.AddrPort {
	port := uint16(UDPPort)
	if s.in.below(4) == 0 {
		port++
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + s.in.below(5))}), port)
}

// number draws a number near those that are in use, or any.
func (s *stranger) number(near uint64) uint64 {
	switch s.in.below(6) {
	case 0:
		return near + 1
	case 1:
		return near - 1
	case 2:
		return binary.LittleEndian.Uint64(append(s.in.bytes(8), make([]byte, 8)...))
	}
	return near
}

// session draws the number of a session.
func (s *stranger) session() uint64 {
	ids := make([]uint64, 0, len(s.owners))
	for id := range s.owners {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return s.number(0)
	}
	return s.number(ids[s.in.below(len(ids))])
}

// send hands the coordinator a message and checks what it sends.
func (s *stranger) send(from netip.AddrPort, m *message) {
	s.hello = netip.AddrPort{}
	switch m.kind {
	case msgHello:
		s.hello = from
	case msgJoin:
		if len(m.body) == len(nic.Key{}) && from.Port() == UDPPort && m.id > s.instances[from.Addr()] {
			s.keys[from.Addr()], s.instances[from.Addr()] = nic.Key(m.body), m.id
		}
	case msgChange:
		if o := op(m.op); s.owners[m.id] == from && o >= opPut && o <= opDelete {
			s.asked[m.id] = max(s.asked[m.id], m.number)
		}
	default:
	}
	b := m.encode()
	s.c.Receive(s.now, from, b, &s.out)
	if m.kind == msgHello {
		s.pidOf(nic.PID(m.region))
	}
	s.check()
}

// pidOf notes the PID of the session that a hello has opened.
func (s *stranger) pidOf(pid nic.PID) {
	for id := range s.c.sessions {
		if _, ok := s.owners[id]; !ok {
			s.owners[id], s.pids[id] = s.hello, pid
		}
	}
}

// check checks what the coordinator has sent: each message to its owner, and no key to anybody else.
func (s *stranger) check() {
	s.t.Helper()
	packets, rekeys := s.out.Packets, s.out.Rekeys
	s.rekey = append(s.rekey, rekeys...)
	s.out = Outbox{}
	for _, k := range rekeys {
		if k.Key != nic.Derive(s.keys[k.Target], s.c.cfg.Addr, s.c.cfg.PID, onerma.Rekey) {
			s.t.Fatalf("REKEY of %v with another key", k.Target)
		}
	}
	for _, p := range packets {
		var m message
		if !m.parse(p.Data) || m.store != s.c.store {
			s.t.Fatalf("a message that cannot be parsed, or of store %x", m.store)
		}
		switch m.kind {
		case msgView:
			s.checkView(p.To, &m)
		case msgOutcome:
			if s.owners[m.id] != p.To || m.number != s.asked[m.id] || int(m.op) >= len(results) {
				s.t.Fatalf("outcome %d of change %d of session %x to %v; it belongs to %v", m.op, m.number, m.id, p.To, s.owners[m.id])
			}
		case msgCopy, msgRecord:
			if m.id != s.instances[p.To.Addr()] || p.To.Port() != UDPPort {
				s.t.Fatalf("%d of instance %d to %v, whose last one is %d", m.kind, m.id, p.To, s.instances[p.To.Addr()])
			}
		case msgForgotten:
			if owner, ok := s.owners[m.id]; ok && owner == p.To {
				s.t.Fatalf("session %x of %v was forgotten", m.id, p.To)
			}
		case msgRestart:
		default:
			s.t.Fatalf("message of kind %d", m.kind)
		}
		if p.To == ownAddr {
			s.own.Receive(s.now, s.own.cfg.Coordinator, p.Data, &s.said)
		}
	}
	s.checkMembers()
}

// checkView checks that a view has the keys of its receiver.
func (s *stranger) checkView(to netip.AddrPort, m *message) {
	s.t.Helper()
	var v view
	if !v.parse(m.body) || v.shape != fuzzShape || s.owners[m.id] != to {
		s.t.Fatalf("view of session %x to %v; it belongs to %v", m.id, to, s.owners[m.id])
	}
	seen := make(map[netip.Addr]bool)
	for _, r := range v.replicas {
		if seen[r.Addr] || r.Key != nic.Derive(s.keys[r.Addr], to.Addr(), s.pids[m.id], onerma.Read) {
			s.t.Fatalf("replica %v twice, or with another key", r.Addr)
		}
		seen[r.Addr] = true
	}
}

// checkMembers checks the coordinator's own state.
func (s *stranger) checkMembers() {
	s.t.Helper()
	seen := make(map[netip.Addr]bool)
	for _, m := range s.c.members {
		if seen[m.addr.Addr()] || m.acked > s.c.head() || m.instance != s.instances[m.addr.Addr()] {
			s.t.Fatalf("member %v twice, or with acknowledgement %d of %d, or instance %d", m.addr, m.acked, s.c.head(), m.instance)
		}
		seen[m.addr.Addr()] = true
		if m.state == memberActive && m.acked < s.c.effective {
			s.t.Fatalf("%v is a replica with %d of %d records", m.addr, m.acked, s.c.effective)
		}
	}
	s.checkFences()
	t, err := loadTable(fuzzShape, s.settled())
	if err != nil {
		s.t.Fatal(err)
	}
	for key, e := range t.keys {
		if w := fuzzShape.window(key); e.at < w || e.at >= w+windowSlots {
			s.t.Fatalf("key %d is in slot %d, outside of its window", key, e.at)
		}
	}
}

// checkFences checks that a replica goes only if clients cannot read it any more: its server has begun
// again, or it was fenced.
func (s *stranger) checkFences() {
	s.t.Helper()
	now := make(map[netip.Addr]uint64)
	for _, m := range s.c.members {
		if m.counts() {
			now[m.addr.Addr()] = m.instance
		}
	}
	gone := uint64(0)
	for a, instance := range s.read {
		if now[a] != instance && s.instances[a] == instance {
			gone++
		}
	}
	fenced := s.c.stats.Rekeyed + s.c.stats.Expired
	if gone > fenced-s.fenced {
		s.t.Fatalf("%d replicas have gone, %d were fenced", gone, fenced-s.fenced)
	}
	s.read, s.fenced = now, fenced
}

// settled returns the table as it is when all changes in progress are completed.
func (s *stranger) settled() Bytes {
	b := slices.Clone(s.c.memory)
	for _, e := range s.c.table.keys {
		x := e.now
		if e.changing {
			x = e.next
		}
		var enc [slotLen]byte
		x.encode(&enc)
		copy(b[e.at*slotLen:], enc[:])
	}
	return b
}

// step does one thing.
func (s *stranger) step() {
	switch s.in.below(12) {
	case 9, 10, 11: // the real server says what it has to say
		s.own.Tick(s.now, &s.said)
		if len(s.said.Packets) == 0 {
			return
		}
		var m message
		if !m.parse(s.said.Packets[0].Data) {
			s.t.Fatal("the server sends a message that cannot be parsed")
		}
		s.said.Packets = s.said.Packets[1:]
		s.send(ownAddr, &m)
	case 0:
		s.now = s.now.Add(time.Duration(s.in.byte()) * s.c.cfg.RTT / 4)
		if s.c.Deadline() <= s.now {
			s.c.Tick(s.now, &s.out)
			s.check()
		}
	case 1:
		s.send(s.addr(), &message{kind: msgHello, region: uint32(s.in.byte()), number: uint64(s.now)})
	case 2:
		s.send(s.addr(), &message{kind: msgRenew, id: s.session(), number: uint64(s.now)})
	case 3, 4:
		id := s.session()
		from := s.owners[id]
		if !from.IsValid() || s.in.below(8) == 0 {
			from = s.addr()
		}
		s.send(from, &message{kind: msgChange, id: id, number: s.number(s.asked[id] + 1), op: s.in.byte() % 6, key: uint64(s.in.below(5)), body: s.in.bytes(s.in.below(32))})
	case 5:
		from := s.addr()
		s.send(from, &message{kind: msgJoin, id: s.number(s.instances[from.Addr()] + 1), region: 1, body: append(s.in.bytes(16), make([]byte, 16)...)[:16-s.in.below(20)/19]})
	case 6: // a server acknowledges what it was sent, or says something else
		from := s.addr()
		m := message{kind: msgProgress, id: s.number(s.instances[from.Addr()]), number: s.number(s.c.head()), at: uint32(s.number(uint64(fuzzShape.Bytes()))), store: s.c.store}
		if s.in.below(8) == 0 {
			m.store++
		}
		s.send(from, &m)
	case 7:
		if len(s.rekey) > 0 {
			k := s.rekey[0]
			s.rekey = s.rekey[1:]
			s.c.Rekeyed(s.now, k.Tag+uint64(s.in.below(8)/7), nic.Status(s.in.below(5)), &s.out)
			s.check()
		}
	default: // anything, with a checksum or without
		m := message{kind: kind(s.in.byte()), op: s.in.byte(), id: s.session(), number: s.number(1), key: s.number(1), at: uint32(s.in.byte()), region: uint32(s.in.byte())}
		m.body = s.in.bytes(s.in.below(64))
		if m.kind >= msgHello && m.kind <= msgProgress {
			m.kind = msgView // the others are above
		}
		b := m.encode()
		s.c.Receive(s.now, s.addr(), b, &s.out)
		s.c.Receive(s.now, s.addr(), s.in.bytes(60), &s.out)
		s.check()
	}
}

// No message makes the coordinator panic, and what it sends goes to its owner: views, keys and outcomes
// to the client that has opened the session, copies and records to the present instance of a server.
func FuzzCoordinator(f *testing.F) {
	for seed := range uint64(64) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := make([]byte, 2048)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newStranger(t, in)
		for len(s.in) > 0 {
			s.step()
		}
	})
}

// No message makes a server or a client panic, and a server never has a table that is none.
func FuzzReceivers(f *testing.F) {
	whole := &message{kind: msgCopy, id: 1, store: 5, number: 3, region: uint32(fuzzShape.Bytes()), body: make([]byte, fuzzShape.Bytes())}
	v := view{epoch: 1, lease: time.Millisecond, shape: fuzzShape, replicas: []Replica{{Addr: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Region: 1}}}
	for _, m := range []*message{
		whole,
		{kind: msgRecord, id: 1, store: 5, number: 4, op: uint8(stepSet), key: 1, body: []byte("x")},
		{kind: msgView, id: 9, store: 5, number: 1, body: v.encode()},
		{kind: msgForgotten, id: 9, store: 5},
		{kind: msgOutcome, id: 9, store: 5, number: 1},
		{kind: msgRestart, id: 1, store: 5},
	} {
		f.Add(whole.encode(), m.encode())
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		mem := make(Bytes, fuzzShape.Bytes())
		co := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), UDPPort)
		s, err := NewServer(ServerConfig{
			Coordinator: co, Shape: fuzzShape, Memory: mem, First: 1, RTT: time.Millisecond,
			Lend: func() (nic.RegionID, nic.Key, error) { return 1, nic.Key{}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		c := &Client{cfg: ClientConfig{RTT: time.Millisecond, Health: new(Health)}, port: &slowPort{now: 1}, asked: 1}
		for i, b := range [][]byte{a, b, resealed(a), resealed(b), resealed(a), resealed(b)} {
			var out Outbox
			s.Receive(clock.Time(i+1), co, b, &out)
			s.Tick(clock.Time(i+1), &out)
			c.handle(b)
			if s.table == nil {
				continue
			}
			for key, e := range s.table.keys {
				if e.at >= fuzzShape.slots() || e.now.state == live && int(e.now.cell) >= fuzzShape.Cells {
					t.Fatalf("key %d is in slot %d, its value in cell %d", key, e.at, e.now.cell)
				}
			}
		}
	})
}

// resealed returns a message with a right checksum.
func resealed(b []byte) []byte {
	if len(b) < headLen+sumLen {
		return b
	}
	m := message{
		kind: kind(b[0]), op: b[1], id: binary.LittleEndian.Uint64(b[2:]), number: binary.LittleEndian.Uint64(b[10:]), key: binary.LittleEndian.Uint64(b[18:]),
		at: binary.LittleEndian.Uint32(b[26:]), region: binary.LittleEndian.Uint32(b[30:]), store: binary.LittleEndian.Uint64(b[34:]), body: b[headLen : len(b)-sumLen],
	}
	return m.encode()
}

// A server does not mix the tables of two stores, and a coordinator does not use one that has a part of
// another store's table.
func TestStoresAreKeptApart(t *testing.T) {
	shape := Shape{Buckets: 32, Cells: 64, Value: 100} // more than one part
	co := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), UDPPort)
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), UDPPort)
	mem := make(Bytes, shape.Bytes())
	s, err := NewServer(ServerConfig{
		Coordinator: co, Shape: shape, Memory: mem, First: 7, RTT: time.Millisecond,
		Lend: func() (nic.RegionID, nic.Key, error) { return 1, nic.Key{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCoordinator(CoordinatorConfig{Addr: co.Addr(), Shape: shape, Rand: rand.New(rand.NewPCG(1, 1)), RTT: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var join, out, answer Outbox
	s.Tick(1, &join)
	// The former coordinator's parts of its table and records arrive late, when the next one runs.
	late := func() {
		old := message{kind: msgCopy, id: s.instance, store: c.store + 1, region: uint32(len(mem)), at: uint32(s.copied), body: bytes.Repeat([]byte{0xee}, 1000)}
		s.Receive(2, co, old.encode(), &Outbox{})
		r := message{kind: msgRecord, id: s.instance, store: c.store + 1, number: s.position + 1, op: uint8(stepSet), key: 3, body: []byte{0xee}}
		s.Receive(2, co, r.encode(), &Outbox{})
	}
	late()
	for range 8 {
		for _, p := range join.Packets {
			c.Receive(3, from, p.Data, &out)
		}
		join = Outbox{}
		for _, p := range out.Packets {
			if s.Receive(4, co, p.Data, &answer); s.copied > 0 {
				late()
			}
		}
		out = Outbox{}
		join, answer = answer, Outbox{}
		if len(join.Packets) == 0 {
			s.Tick(clock.Time(time.Second), &join)
		}
	}
	if s.Starts() != 2 || s.table == nil || bytes.Contains(mem, []byte{0xee}) {
		t.Errorf("%d instances, table %t, %s", s.Starts(), s.table != nil, fmt.Sprint(bytes.Count(mem, []byte{0xee}))+" bytes of another store's table")
	}
	if got := c.Replicas(); len(got) != 1 {
		t.Errorf("replicas %v", got)
	}
}

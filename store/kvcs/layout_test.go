package kvcs

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A cell is accepted only for the slot that names it, and only whole.
func TestCellOfAnotherChange(t *testing.T) {
	s := slot{key: 7, version: 3, length: 5, state: live}
	b := appendCell(nil, 7, 3, []byte("hello"))
	if v, ok := valueOf(b, &s); !ok || string(v) != "hello" {
		t.Fatalf("%q %t", v, ok)
	}
	for name, c := range map[string][]byte{
		"another key": appendCell(nil, 8, 3, []byte("hello")), "another version": appendCell(nil, 7, 4, []byte("hello")),
		"another length": appendCell(nil, 7, 3, []byte("hell\x00"))[:cellHead+5],
	} {
		x := s
		if name == "another length" {
			x.length = 4
		}
		if _, ok := valueOf(c, &x); ok {
			t.Error(name)
		}
	}
	b[len(b)-1]++
	if _, ok := valueOf(b, &s); ok {
		t.Error("a torn value was accepted")
	}
}

// Each instance of a server lends its memory under a key that no earlier one had.
func TestKeyOfAnInstance(t *testing.T) {
	co := netip.MustParseAddrPort("10.0.0.1:4793")
	shape := Shape{Buckets: 1, Cells: 2, Value: 16}
	keys := byte(0)
	s, err := NewServer(ServerConfig{
		Coordinator: co, Shape: shape, Memory: make(Bytes, shape.Bytes()), First: 1, RTT: time.Microsecond,
		Lend: func() (nic.RegionID, nic.Key, error) { keys++; return 1, nic.Key{keys}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var out Outbox
	s.Tick(1, &out)
	s.Receive(2, co, (&message{kind: msgRestart, id: 1}).encode(), &out)
	s.Receive(3, co, (&message{kind: msgRestart, id: 1}).encode(), &out) // a copy
	var first, second message
	if len(out.Packets) != 2 || !first.parse(out.Packets[0].Data) || !second.parse(out.Packets[1].Data) {
		t.Fatalf("%d messages", len(out.Packets))
	}
	if first.id != 1 || second.id != 2 || nic.Key(first.body) == nic.Key(second.body) || s.Starts() != 2 {
		t.Errorf("instances %d and %d with keys %x and %x", first.id, second.id, first.body, second.body)
	}
}

// slowPort is a Port whose READ takes a long time, and whose coordinator answers at once.
type slowPort struct {
	now   clock.Time
	takes time.Duration
	view  view
	inbox [][]byte
	mem   Bytes
	reads int
}

func (p *slowPort) Closed() bool    { return false }
func (p *slowPort) Now() clock.Time { return p.now }

func (p *slowPort) Send(b []byte) {
	var m message
	if m.parse(b) {
		p.inbox = append(p.inbox, (&message{kind: msgView, id: 1, number: m.number, body: p.view.encode()}).encode())
	}
}

func (p *slowPort) Receive(until clock.Time) ([]byte, bool) {
	if len(p.inbox) == 0 {
		p.now = max(p.now, until)
		return nil, false
	}
	b := p.inbox[0]
	p.inbox = p.inbox[1:]
	return b, true
}

func (p *slowPort) Read(_ *Remote, offset uint64, b []byte, _ clock.Time) nic.Status {
	p.mem.Load(b, int(offset))
	p.now = p.now.Add(p.takes)
	p.reads++
	p.takes = time.Microsecond
	return nic.OK
}

// A client whose lease ends while it reads a key reads it again.
func TestLeaseEndsInAGet(t *testing.T) {
	shape := Shape{Buckets: 1, Cells: 2, Value: 16}
	p := &slowPort{now: 1, takes: 200 * time.Microsecond, mem: make(Bytes, shape.Bytes())}
	p.view = view{epoch: 1, lease: 100 * time.Microsecond, shape: shape, replicas: []Replica{{Addr: netip.MustParseAddr("10.0.0.2"), Region: 1}}}
	table := newTable(shape, p.mem)
	for i, r := range []record{{stepSet, 5, []byte("value")}, {step: stepCommit, key: 5}} {
		if err := table.execute(uint64(1+i), &r); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Open(ClientConfig{Port: p, RTT: time.Microsecond}, p.now.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Get(5, nil, p.now.Add(time.Second))
	if err != nil || string(v) != "value" || p.reads != 4 {
		t.Errorf("%q, %v, %d READs", v, err, p.reads)
	}
}

// No bytes make the parsers, the coordinator or a server panic.
func FuzzMessages(f *testing.F) {
	shape := Shape{Buckets: 2, Cells: 4, Value: 32}
	v := view{epoch: 1, lease: 1, shape: shape, replicas: []Replica{{Addr: netip.MustParseAddr("10.0.0.2"), Region: 1}}}
	for _, m := range []message{
		{kind: msgHello, number: 1},
		{kind: msgView, body: v.encode()},
		{kind: msgJoin, id: 5, body: make([]byte, 16)},
		{kind: msgCopy, id: 1, region: uint32(shape.Bytes()), body: make([]byte, shape.Bytes())},
		{kind: msgRecord, id: 1, number: 1, op: uint8(stepSet), body: []byte("x")},
		{kind: msgProgress, id: 5, number: 1},
		{kind: msgChange, id: 1, number: 1, op: uint8(opInsert)},
	} {
		b := m.encode()
		f.Add(b[:len(b)-sumLen])
	}
	co := netip.MustParseAddrPort("10.0.0.1:4793")
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := NewServer(ServerConfig{
			Coordinator: co, Shape: shape, Memory: make(Bytes, shape.Bytes()), First: 1, RTT: time.Microsecond,
			Lend: func() (nic.RegionID, nic.Key, error) { return 1, nic.Key{}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		var out Outbox
		for _, data := range [][]byte{b, sealed(b)} {
			s.Receive(1, co, data, &out)
			var w view
			w.parse(data)
			var x slot
			if len(data) >= slotLen {
				x.parse(data)
			}
		}
	})
}

// sealed returns b as a message with the right checksum.
func sealed(b []byte) []byte {
	var m message
	if len(b) < headLen {
		return b
	}
	m = message{kind: kind(b[0]), op: b[1], id: uint64(b[2]), number: uint64(b[10]), key: uint64(b[18]), at: uint32(b[26]), region: uint32(b[30]), body: b[headLen:]}
	return m.encode()
}

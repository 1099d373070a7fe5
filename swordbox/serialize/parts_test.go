package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// Zero and negative bounds of a configuration stand for the documented defaults; a bound that is
// set stays.
func TestDefaults(t *testing.T) {
	for _, c := range []Config{{}, {Segments: -1, Window: -1, Held: -1, HeldPerFlow: -1, OwnOps: -1, HoldTime: -1, RedoTime: -1}} {
		d := c.withDefaults()
		if d.Segments != 128 || d.Window != 128 || d.Held != 1024 || d.HeldPerFlow != 256 || d.OwnOps != 128 ||
			d.HoldTime != 30*time.Millisecond || d.RedoTime != time.Millisecond || d.Transit != 10*time.Millisecond || d.Words.Budget != 5*time.Second {
			t.Errorf("%+v", d)
		}
		if !d.Moving(nil) {
			t.Error("by default a flow may not move")
		}
	}
	c := Config{Segments: 1, Window: 2, Held: 3, HeldPerFlow: 4, OwnOps: 5, HoldTime: 6, RedoTime: 7, Transit: 8}
	c.Words.Budget = 9
	if d := c.withDefaults(); d.Segments != 1 || d.Window != 2 || d.Held != 3 || d.HeldPerFlow != 4 || d.OwnOps != 5 ||
		d.HoldTime != 6 || d.RedoTime != 7 || d.Transit != 8 || d.Words.Budget != 9 {
		t.Errorf("%+v", d)
	}
}

// What a request changes or reads is what its headers name. An ATOMIC_WRITE and an atomic change a
// word, whatever length they claim.
func TestTargetsOfRequests(t *testing.T) {
	eth := wire.RETH{VA: 0x1000, RKey: 5, Length: 99}
	atomic := wire.AtomicETH{VA: 0x2000, RKey: 6}
	for _, c := range []struct {
		op   wire.Opcode
		va   uint64
		n    uint32
		rkey uint32
	}{
		{wire.RCWriteOnly, 0x1000, 99, 5},
		{wire.RCReadRequest, 0x1000, 99, 5},
		{wire.RCAtomicWrite, 0x1000, 8, 5},
		{wire.RCCmpSwap, 0x2000, 8, 6},
		{wire.RCFetchAdd, 0x2000, 8, 6},
		{wire.RCSendOnly, 0, 0, 0},
		{wire.RCWriteMiddle, 0, 0, 0},
	} {
		f := &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: c.op}, RETH: eth, AtomicETH: atomic}}
		if va, n, rkey := target(f); va != c.va || n != c.n || rkey != c.rkey {
			t.Errorf("%v: %d bytes at %#x, key %d, want %d at %#x, key %d", c.op, n, va, rkey, c.n, c.va, c.rkey)
		}
	}
}

// A WRITE of several packets goes on for as many as its length needs.
func TestRestOfAMessage(t *testing.T) {
	for length, want := range map[uint32]int{1: 0, 100: 0, 101: 1, 200: 1, 201: 2, 1000: 9} {
		f := &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteFirst}, RETH: wire.RETH{Length: length}, Payload: make([]byte, 100)}}
		if n := restOf(f); n != want {
			t.Errorf("%d bytes in packets of 100: %d more packets, want %d", length, n, want)
		}
		f.BTH.Opcode = wire.RCWriteOnly
		if n := restOf(f); n != 0 {
			t.Errorf("%d packets behind the only one", n)
		}
	}
}

// A key is proven for the addresses between those that requests have reached with one right, and
// not beyond, for another right or under another key.
func TestProvenKeys(t *testing.T) {
	var k keys
	k.prove(5, rightWrite, 100, 8)
	k.prove(5, rightWrite, 200, 8)
	k.prove(5, rightRead, 0, 0)          // of no bytes
	k.prove(5, rightRead, ^uint64(0), 2) // around the end
	for _, c := range []struct {
		rkey  uint32
		right right
		va    uint64
		n     uint32
		want  bool
	}{
		{5, rightWrite, 100, 108, true},
		{5, rightWrite, 99, 8, false},
		{5, rightWrite, 101, 108, false},
		{5, rightWrite, 207, 1, true},
		{5, rightWrite, 208, 1, false},
		{5, rightRead, 100, 8, false},
		{6, rightWrite, 100, 8, false},
		{6, rightRead, 0, 0, true},
		{0, rightWrite, 0, 0, false},
		{5, rightWrite, ^uint64(0), 200, false},
	} {
		if got := k.covers(c.rkey, c.right, c.va, c.n); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	k.forget(5)
	if k.covers(5, rightWrite, 100, 8) {
		t.Error("a key that was forgotten is proven")
	}
	k.prove(7, rightAtomic, 100, 8)
	k.ban(7)
	k.prove(7, rightAtomic, 100, 8)
	if k.covers(7, rightAtomic, 100, 8) || !k.isBanned(7) || k.isBanned(8) {
		t.Error("a banned key is proven")
	}
}

// Both tables of keys are bounded: one that is full begins again with the newest key.
func TestKeysAreBounded(t *testing.T) {
	var k keys
	for i := range uint32(maxKeys) {
		k.prove(i, rightWrite, 1, 1)
		k.ban(maxKeys + i)
	}
	if len(k.table) != maxKeys || len(k.banned) != maxKeys {
		t.Errorf("%d keys are proven, %d banned, want %d each", len(k.table), len(k.banned), maxKeys)
	}
	k.prove(0, rightWrite, 9, 1) // a key that is there needs no room
	if len(k.table) != maxKeys {
		t.Errorf("%d keys are proven", len(k.table))
	}
	k.prove(1<<20, rightWrite, 1, 1)
	k.ban(1<<20 + 1)
	if len(k.table) != 1 || !k.covers(1<<20, rightWrite, 1, 1) || len(k.banned) != 1 || !k.isBanned(1<<20+1) {
		t.Errorf("%d keys are proven, %d banned, want the newest", len(k.table), len(k.banned))
	}
}

// The right that a request needs.
func TestRightsOfRequests(t *testing.T) {
	for op, want := range map[wire.Opcode]right{
		wire.RCWriteOnly: rightWrite, wire.RCSendOnly: rightWrite, wire.RCAtomicWrite: rightWrite, wire.RCReadRequest: rightRead,
		wire.RCCmpSwap: rightAtomic, wire.RCFetchAdd: rightAtomic,
	} {
		if got := rightOf(op); got != want {
			t.Errorf("%v needs right %d, want %d", op, got, want)
		}
	}
}

// A tag names the sequencer that had its index when the request was submitted, and no later one.
func TestTagsOfFlows(t *testing.T) {
	var f flowTable
	var l [3]sequencer
	for i := range l {
		f.add(&l[i])
	}
	tag := l[1].tag(9)
	if tag != (requester.Tag{Flow: 1, Generation: l[1].serial, PSN: 9}) || f.byTag(tag) != &l[1] || f.byTag(requester.Tag{Flow: 3}) != nil {
		t.Errorf("%+v", tag)
	}
	f.remove(&l[1])
	if f.byTag(tag) != nil {
		t.Error("the sequencer has ended")
	}
	var next sequencer
	if f.add(&next); next.index != 1 || f.byTag(tag) != nil || f.byTag(next.tag(9)) != &next {
		t.Errorf("the next one has index %d", next.index)
	}
}

// The sequencers that settle has served wait behind the others, those that do not wait any more
// leave the list.
func TestTurnsOfBlockedFlows(t *testing.T) {
	var b blockedList
	b.prune()
	var l [5]sequencer
	for i := range l {
		l[i].waits.held.n = 1
		b.add(&l[i])
		b.add(&l[i]) // once
	}
	l[0].waits.served, l[3].waits.served = true, true
	l[1].waits.held.n = 0
	l[2].waits.held.n, l[2].naks = 0, nakOwed
	b.prune()
	want := []*sequencer{&l[2], &l[4], &l[0], &l[3]}
	if len(b.list) != len(want) || l[1].waits.blocked || !l[2].waits.blocked || l[0].waits.served {
		t.Fatalf("%d wait", len(b.list))
	}
	if b.list[:5][4] != nil {
		t.Error("a flow that does not wait any more is kept in memory")
	}
	for i := range want {
		if b.list[i] != want[i] {
			t.Errorf("place %d has another flow", i)
		}
	}
}

// Operations in flight are kept in their order, at most so many, and found by their PSNs.
func TestOperationsInFlight(t *testing.T) {
	o := clientOps{max: 6}
	if o.newest() != nil || o.messageAt(0) != nil {
		t.Error("there is an operation")
	}
	for i := range 6 {
		if !o.room() {
			t.Fatalf("no room for operation %d", i)
		}
		op := o.add()
		if *op != (clientOp{}) {
			t.Errorf("operation %d begins as %+v", i, *op)
		}
		op.first, op.end, op.all, op.n = wire.PSN(10*i), wire.PSN(10*i+5), i != 3, uint32(i)
		if i == 4 {
			op.n = atomiccache.Everything
		}
		if o.newest() != op {
			t.Errorf("operation %d is not the newest", i)
		}
	}
	if o.room() {
		t.Error("there is room for a seventh operation")
	}
	for psn, want := range map[wire.PSN]int{0: 0, 4: 0, 5: -1, 9: -1, 10: 1, 14: 1, 30: -1, 40: -1, 54: 5, 55: -1} {
		op := o.messageAt(psn)
		if (op != nil) != (want >= 0) || op != nil && op.first != wire.PSN(10*want) {
			t.Errorf("PSN %d belongs to %+v, want operation %d", psn, op, want)
		}
	}
	for range 3 { // the ring goes round
		o.head++
		*o.add() = clientOp{extent: extent{first: 77}}
	}
	o.head++
	if op := o.add(); *op != (clientOp{}) {
		t.Errorf("an operation in a used place begins as %+v", *op)
	}
}

// The first rule that covers a request applies.
func TestFirstRuleApplies(t *testing.T) {
	key, part, all := &rules.Rule{RKey: 7}, &rules.Rule{From: 0x1000, To: 0x2000}, &rules.Rule{}
	s := &server{rules: []*rules.Rule{key, part, all}}
	for _, c := range []struct {
		va   uint64
		n    uint32
		rkey uint32
		want *rules.Rule
	}{{0x1000, 8, 7, key}, {0x1000, 8, 8, part}, {0x1ff8, 8, 8, part}, {0x2000, 8, 8, all}, {0xff8, 8, 8, all}} {
		if got := s.match(c.va, c.n, c.rkey); got != c.want {
			t.Errorf("%d bytes at %#x, key %d: %+v", c.n, c.va, c.rkey, got)
		}
	}
	if s.rules = s.rules[:1]; s.match(0, 8, 8) != nil {
		t.Error("a rule for another key applies")
	}
}

// A duplicate repeats the opcode, key and operands of the first request; one of a READ may ask for
// the rest of the bytes.
func TestDuplicatesOfARequest(t *testing.T) {
	frame := func(op wire.Opcode, va uint64, n, rkey uint32, compare, swap uint64) *wire.Frame {
		return &wire.Frame{Packet: wire.Packet{
			BTH: wire.BTH{Opcode: op}, RETH: wire.RETH{VA: va, Length: n, RKey: rkey},
			AtomicETH: wire.AtomicETH{VA: va, RKey: rkey, Compare: compare, SwapOrAdd: swap},
		}}
	}
	for _, first := range []*wire.Frame{
		frame(wire.RCReadRequest, 0x1000, 100, 5, 0, 0), frame(wire.RCWriteOnly, 0x1000, 100, 5, 0, 0), frame(wire.RCCmpSwap, 0x1000, 8, 5, 1, 2),
	} {
		w := window{max: 8}
		r := w.remember(first, 1, 0)
		op, n := first.BTH.Opcode, first.RETH.Length
		read, atomic := op == wire.RCReadRequest, op == wire.RCCmpSwap
		for _, c := range []struct {
			f    *wire.Frame
			want bool
		}{
			{frame(op, 0x1000, n, 5, 1, 2), true},
			{frame(op, 0x1000, n, 6, 1, 2), false},
			{frame(op, 0xfff, n, 5, 1, 2), false},
			{frame(op, 0x1040, n-64, 5, 1, 2), read},
			{frame(op, 0x1000, n+1, 5, 1, 2), atomic}, // an atomic has no length
			{frame(op, 0x1000, n, 5, 9, 2), !atomic},
			{frame(op, 0x1000, n, 5, 1, 9), !atomic},
			{frame(wire.RCFetchAdd, 0x1000, n, 5, 1, 2), false},
		} {
			if got := r.isSame(c.f); got != c.want {
				t.Errorf("%v again as %v: %+v %+v: a duplicate: %v", op, c.f.BTH.Opcode, c.f.RETH, c.f.AtomicETH, got)
			}
		}
	}
}

// The newest record that ends a range of PSNs, and the ones that wait for a READ that is executed
// again, are found by their PSNs.
func TestRecordsByPSN(t *testing.T) {
	w := window{max: 8}
	put := func(psn wire.PSN, op wire.Opcode, span int) *record {
		return w.remember(&wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: op, PSN: psn}}}, span, placeOwn)
	}
	put(10, wire.RCWriteOnly, 1).own = 110
	put(11, wire.RCReadRequest, 3).own = 111
	put(20, wire.RCCmpSwap, 1).own = 120
	for _, c := range []struct {
		from, to wire.PSN
		want     bool
	}{{10, 11, false}, {10, 12, true}, {11, 12, true}, {12, 20, false}, {12, 21, true}, {20, 20, false}, {21, 99, false}, {0, 99, true}} {
		if got := w.hasResult(c.from, c.to); got != c.want {
			t.Errorf("a result from %d to before %d: %v", c.from, c.to, got)
		}
	}
	for own, want := range map[wire.PSN]int{109: -1, 110: 10, 111: 11, 113: 11, 114: -1, 120: 20, 121: -1} {
		r := w.onClient(own)
		if (r != nil) != (want >= 0) || r != nil && r.psn != wire.PSN(want) {
			t.Errorf("PSN %d on the client's connection: %+v, want that of %d", own, r, want)
		}
	}
	w.at(w.open).place = 0
	if w.onClient(110) != nil {
		t.Error("a request on a shared connection has a PSN on the client's")
	}
	if psn := w.takeBack(); psn != 10 || w.outstanding() != 0 || w.results != 0 || w.oldest() != nil {
		t.Errorf("taken back from %d on; %d wait, %d results", psn, w.outstanding(), w.results)
	}
}

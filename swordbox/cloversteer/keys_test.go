package cloversteer_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
)

// The listing shows the requests of each key, its tail, and how many appends wait.
func TestKeysOfAStore(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	b.node(3, 9, 1, 8) // the first node of another key
	want := cloversteer.Key{Key: 7, Appends: 1, Tail: &cloversteer.Tail{Server: addr(serverHost), RKey: rkey, VA: va(2), Length: 128, Version: 1, Sequence: 2}}
	check := func(what string) {
		t.Helper()
		list := b.m.Keys(b.now)
		if len(list) != 1 {
			t.Fatalf("%s: %d keys: %+v", what, len(list), list)
		}
		got := list[0]
		if (got.Tail == nil) != (want.Tail == nil) || got.Tail != nil && *got.Tail != *want.Tail {
			t.Errorf("%s: tail %+v, want %+v", what, got.Tail, want.Tail)
		}
		got.Tail, got.Rate = nil, 0
		x := want
		if x.Tail = nil; got != x {
			t.Errorf("%s: %+v, want %+v", what, got, x)
		}
	}
	check("two nodes")
	first := b.cas(2, 1, 1, 3, 1)
	b.one(first)
	want.Appends, want.Steered = 2, 1
	check("an append in flight")
	b.node(3, 4, 1, 7)
	second := b.cas(3, 1, 1, 4, 1)
	b.send(second)
	want.Appends, want.Waiting = 3, 1
	check("an append waits")
	b.send(b.read(1, 1))
	want.Reads, want.Waiting = 1, 2
	check("a READ waits, too")
	b.send(answer(first, layout.Header(1)))
	want.Waiting, want.Steered = 0, 3
	want.Tail.VA, want.Tail.Sequence = va(3), 3
	check("after the response")
	b.send(answer(second, layout.Superseded(1, layout.Location{Handle: 9, Version: 1})))
	want.Tail = nil
	check("after a failure")
	if s := b.m.Stats(); s.Stores != 1 || s.Nodes != 5 || s.Appends != 3 || s.Reads != 1 || s.Held != 1 || s.HeldReads != 1 || s.Linked != 2 ||
		s.Failed != 1 || s.Forgotten != 1 || s.SteeredAppends != 2 || s.SteeredReads != 1 || s.Translated != 0 {
		t.Errorf("%+v", s)
	}
}

// The appends of several clients wait for one in flight.
func TestAppendsOfSeveralClientsWait(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	first := b.cas(2, 1, 1, 3, 1)
	b.one(first)
	b.node(3, 4, 1, 7)
	b.node(4, 5, 1, 7)
	b.node(1, 6, 1, 7)
	for i, h := range map[int]layout.Handle{3: 4, 4: 5, 1: 6} {
		if list := b.send(b.cas(i, 1, 1, h, 1)); len(list) != 0 {
			t.Fatalf("left: %v", list)
		}
	}
	if s := b.m.Stats(); s.Held != 3 || s.NoRoom != 0 {
		t.Errorf("%+v", s)
	}
}

// A waiting request is dropped when its connection ends, and the place is used again.
func TestConnectionOfAWaitingRequestEnds(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	first := b.cas(2, 1, 1, 3, 1)
	b.one(first)
	b.node(3, 4, 1, 7)
	if list := b.send(b.cas(3, 1, 1, 4, 1)); len(list) != 0 {
		t.Fatalf("left: %v", list)
	}
	b.send(datagram(3, serverHost, &mad.DREQ{LocalID: 3, RemoteID: 0x83, QPN: 0x23}))
	b.send(datagram(serverHost, 3, &mad.DREP{LocalID: 0x83, RemoteID: 3}))
	if list := b.wait(2 * time.Millisecond); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
	if n := b.sw.Port(3).Drops[cloversteer.ReasonGone]; n != 1 {
		t.Errorf("%d packets were dropped: %v", n, b.sw.Port(3).Drops)
	}
	if list := b.m.Keys(b.now); len(list) != 1 || list[0].Waiting != 0 {
		t.Errorf("%+v", list)
	}
	// Another connection of the client begins without what the switch remembered of the former one.
	b.send(datagram(3, serverHost, &mad.REQ{
		LocalID: 0x33, QPN: 0x13, PSN: 7, MTU: 3, Primary: mad.Path{LocalGID: addr(3).As16(), RemoteGID: addr(serverHost).As16()},
	}))
	b.send(datagram(serverHost, 3, &mad.REP{LocalID: 0xb3, RemoteID: 0x33, QPN: 0x23, PSN: 300}))
	b.sent[3] = 0
	b.node(3, 5, 1, 7)
	f := b.read(3, 5)
	b.send(f)
	if g := b.wait(2 * time.Millisecond); len(g) > 1 {
		t.Errorf("left: %v", g)
	}
	if s := b.m.Stats(); s.Repeated != 0 || s.Impatient != 0 {
		t.Errorf("%+v", s)
	}
}

// A READ or an append whose response is a NAK or that is not the one of an atomic changes nothing.
func TestOtherResponses(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	f := b.cas(2, 1, 1, 3, 1)
	b.one(f)
	nak := frame(serverHost, 2, 0x12, wire.RCAck, f.BTH.PSN)
	nak.AETH.Syndrome = wire.NakPSNSequence
	b.pass(nak)
	if s := b.m.Stats(); s.Linked != 1 || s.Failed != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	b.pass(answer(f, layout.Header(1)))
	b.pass(answer(f, layout.Header(1))) // once more
	if s := b.m.Stats(); s.Linked != 2 || s.Failed != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

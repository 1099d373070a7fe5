package cloversteer_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// inFlight returns a box in which the append of node 3 by client 2 is in flight, and that of node 4
// by client 3 waits for it.
func inFlight(t *testing.T) *box {
	t.Helper()
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	b.one(b.cas(2, 1, 1, 3, 1))
	b.node(3, 4, 1, 7)
	if list := b.send(b.cas(3, 1, 1, 4, 1)); len(list) != 0 {
		t.Fatalf("left: %v", list)
	}
	return b
}

// A client that appends a node again, on another connection, does not wait for the first append any
// more: the switch sends the waiting one as its client has sent it, and no other.
func TestAppendOfANodeThatWaits(t *testing.T) {
	b := inFlight(t)
	again := b.cas(4, 1, 1, 4, 1)
	list := b.send(again)
	if len(list) != 1 || senderOf(&list[0]) != 3 {
		t.Fatalf("left: %v, want the append of client 3", list)
	}
	want := *again // the same operands
	want.BTH = list[0].BTH
	wantVA(t, &list[0], &want, va(1))
	if keys := b.m.Keys(b.now); len(keys) != 1 || keys[0].Waiting != 1 {
		t.Errorf("%+v, want one append that waits", keys)
	}
}

// A request that waits is sent before the next one of its connection, and counted.
func TestNextRequestLetsTheWaitingOneGo(t *testing.T) {
	b := inFlight(t)
	list := b.send(b.read(3, 9)) // of a node that the switch does not know
	if len(list) != 2 {
		t.Fatalf("left: %v, want the append and the READ", list)
	}
	if s := b.m.Stats(); s.LetGo != 1 || s.Expired != 0 {
		t.Errorf("%+v", s)
	}
}

// An append whose time is over has left already: when its connection goes on, the switch does not
// send it again.
func TestNextRequestAfterAHoldHasEnded(t *testing.T) {
	b := inFlight(t)
	if list := b.wait(2 * time.Millisecond); len(list) != 1 {
		t.Fatalf("left: %v, want the append", list)
	}
	if list := b.send(b.read(3, 9)); len(list) != 1 {
		t.Fatalf("left: %v, want the READ alone", list)
	}
	if s := b.m.Stats(); s.Expired != 1 {
		t.Errorf("%d holds have ended, want 1", s.Expired)
	}
}

// Retransmissions of steered READs are counted like those of appends.
func TestSteeredReadsAgain(t *testing.T) {
	b := ready(t, rules.Rule{})
	f := b.read(2, 1)
	for range 3 {
		wantVA(t, b.one(f), f, va(2))
	}
	if s := b.m.Stats(); s.Repeated != 2 || s.SteeredReads != 1 {
		t.Errorf("%+v", s)
	}
}

// The switch did not see the node that a client appends. When it succeeds, the switch no longer
// knows the tail, also when it has learnt one since the append was sent.
func TestLateResponseToAnAppendOfAnUnseenNode(t *testing.T) {
	b := ready(t, rules.Rule{})
	unseen := b.cas(2, 2, 1, 9, 1)
	b.pass(unseen)
	b.append(3, 9, 3, 7) // behind the unseen one
	b.append(4, 3, 4, 7)
	f := b.read(1, 3)
	wantVA(t, b.one(f), f, va(4))
	b.pass(answer(unseen, layout.Header(1)))
	b.pass(b.read(1, 3))
	if s := b.m.Stats(); s.Foreign != 1 || s.Forgotten != 2 || s.Linked != 3 {
		t.Errorf("%+v", s)
	}
}

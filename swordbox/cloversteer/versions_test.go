package cloversteer_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// aged returns a box in which key 7 has the chain 1 → 2 → 3, whose last node has version 4.
func aged(t *testing.T) *box {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 4, 7)
	f := b.cas(2, 2, 1, 3, 4)
	b.pass(f)
	b.pass(answer(f, layout.Header(1)))
	return b
}

// wantWord checks the original header in the response to a client.
func wantWord(t *testing.T, b *box, f *wire.Frame, was, want layout.Word) {
	t.Helper()
	if got := b.one(answer(f, was)); layout.Word(got.AtomicAck) != want {
		t.Errorf("the answer %v came as %v, want %v", was, layout.Word(got.AtomicAck), want)
	}
}

// An append to a node of version 1 that is steered to a node of version 4 gets operands of version
// 4, and its response is the one that its client expects (hole 26), also after retransmissions. It tells the
// version 4.
func TestAppendIsTranslated(t *testing.T) {
	b := aged(t)
	b.node(3, 4, 2, 7)
	f := b.cas(3, 1, 1, 4, 2)
	for range 2 {
		got := b.one(f)
		want := wire.AtomicETH{
			VA: va(3), RKey: rkey, Compare: uint64(layout.Header(4)),
			SwapOrAdd: uint64(layout.Superseded(4, layout.Location{Handle: 4, Version: 2})),
		}
		if got.AtomicETH != want {
			t.Fatalf("left as %+v, want %+v", got.AtomicETH, want)
		}
	}
	wantWord(t, b, f, layout.Header(4), layout.Told(1, 4))
	wantWord(t, b, f, layout.Header(4), layout.Told(1, 4))
	b.node(2, 5, 2, 7)
	g := b.cas(2, 2, 1, 5, 2)
	b.one(g) // to node 4, of version 2
	other := layout.Location{Handle: 9, Version: 3}
	wantWord(t, b, g, layout.Superseded(2, other), layout.Superseded(1, other)) // the append failed
	wantWord(t, b, g, layout.Header(3), layout.Header(3))                       // the entry was reused
}

// A READ that is steered to a node of another version returns the version that its client expects;
// a response that the client must refuse is not changed.
func TestReadIsTranslated(t *testing.T) {
	b := aged(t)
	f := b.read(4, 1)
	wantVA(t, b.one(f), f, va(3))
	good := make([]byte, 128)
	layout.Hardened.PutNode(good, layout.Superseded(4, layout.Location{Handle: 9, Version: 1}), 7, []byte("x"))
	got := b.one(response(f, good))
	header, value, err := layout.Hardened.ParseNode(got.Payload, 7)
	if next, more := header.Next(); err != nil || string(value) != "x" || header.EntryVersion() != 1 || !more || next.Handle != 9 {
		t.Errorf("%v %q %v", header, value, err)
	}
	recycled, torn := make([]byte, 128), append([]byte(nil), good...)
	layout.Hardened.PutNode(recycled, layout.Header(5), 7, []byte("y"))
	torn[16] ^= 1
	for _, data := range [][]byte{recycled, torn} {
		if got := b.one(response(f, data)); string(got.Payload) != string(data) {
			t.Errorf("%x came as %x", data, got.Payload)
		}
	}
	if s := b.m.Stats(); s.Translated != 1 || s.Answers != 1 {
		t.Errorf("%+v", s)
	}
}

// response returns the server's answer to a READ.
func response(f *wire.Frame, data []byte) *wire.Frame {
	i := senderOf(f)
	a := frame(serverHost, i, wire.QPN(0x10+i), wire.RCReadResponseOnly, f.BTH.PSN)
	a.Payload = data
	return a
}

// An append to an entry that was reused since its client saw it must fail there. The switch sends
// it to the tail of its key.
func TestStaleAppendGoesToTheTail(t *testing.T) {
	b := aged(t)
	b.node(1, 1, 2, 8) // entry 1 belongs to key 8 now
	b.node(3, 4, 2, 7)
	f := b.cas(3, 1, 1, 4, 2)
	got := b.one(f)
	if got.AtomicETH.VA != va(3) || got.AtomicETH.Compare != uint64(layout.Header(4)) {
		t.Fatalf("left as %+v", got.AtomicETH)
	}
	wantWord(t, b, f, layout.Header(4), layout.Told(1, 4))
	g := b.read(2, 1) // the switch knows no tail of key 8
	wantVA(t, b.one(g), g, va(1))
	if s := b.m.Stats(); s.Stale != 1 || s.Linked != 3 || s.Forgotten != 0 {
		t.Errorf("%+v", s)
	}
}

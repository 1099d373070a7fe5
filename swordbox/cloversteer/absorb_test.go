package cloversteer_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// wantJoined checks that an append has left as one that gives its own node, of version v, the
// successor by.
func wantJoined(t *testing.T, got, f *wire.Frame, n layout.Handle, v layout.Version, by layout.Location) {
	t.Helper()
	want := f.AtomicETH
	want.VA, want.Compare, want.SwapOrAdd = va(n), uint64(layout.Header(v)), uint64(layout.Superseded(v, by))
	if got.BTH != f.BTH || got.AtomicETH != want {
		t.Errorf("left as %v %+v, want %+v", got, got.AtomicETH, want)
	}
}

// crowded returns a box in which the append of node 3 is in flight, and the appends of nodes 4 and
// 5 wait.
func crowded(t *testing.T) (b *box, first, second, third *wire.Frame) {
	b = ready(t, rules.Rule{})
	for i, h := range []layout.Handle{3, 4, 5} {
		b.node(i+2, h, 1, 7)
	}
	first, second, third = b.cas(2, 1, 1, 3, 1), b.cas(3, 1, 1, 4, 1), b.cas(4, 1, 1, 5, 1)
	b.one(first)
	if list := append(b.send(second), b.send(third)...); len(list) != 0 {
		t.Fatalf("left: %v", list)
	}
	return b, first, second, third
}

// A waiting append is absorbed by the first append that is sent after it has arrived, when the
// server has accepted that one. It is not absorbed by the append that was in flight when it
// arrived.
func TestWaitingAppendIsAbsorbed(t *testing.T) {
	b, first, second, third := crowded(t)
	list := b.send(answer(first, layout.Header(1)))
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], second, va(3))
	list = b.send(answer(second, layout.Header(1)))
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantJoined(t, &list[0], third, 5, 1, layout.Location{Handle: 4, Version: 1})
	wantJoined(t, b.one(third), third, 5, 1, layout.Location{Handle: 4, Version: 1}) // a retransmission
	f := b.read(1, 5)
	b.pass(f) // the switch does not know yet whether this node comes before the tail
	b.pass(answer(third, layout.Header(1)))
	g := b.read(1, 5)
	wantVA(t, b.one(g), g, va(4))
	b.append(1, 1, 6, 7)
	b.node(4, 7, 1, 7)
	h := b.cas(4, 5, 1, 7, 1)
	wantVA(t, b.one(h), h, va(6))
	if s := b.m.Stats(); s.Absorbed != 1 || s.Held != 2 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// If the append in flight fails, the waiting appends go on as if it had not been.
func TestFailedAppendAbsorbsNone(t *testing.T) {
	b, first, second, third := crowded(t)
	b.send(answer(first, layout.Header(1)))
	list := b.send(answer(second, layout.Superseded(1, layout.Location{Handle: 9, Version: 1})))
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], third, va(1)) // the switch does not know the tail any more
	if s := b.m.Stats(); s.Absorbed != 0 || s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

// The client of an absorbed append sees the version that it expects.
func TestAbsorbedAppendIsTranslated(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	b.node(3, 4, 1, 7)
	b.node(4, 5, 9, 7)
	first, second, third := b.cas(2, 1, 1, 3, 1), b.cas(3, 1, 1, 4, 1), b.cas(4, 1, 1, 5, 9)
	b.one(first)
	b.send(second)
	b.send(third)
	b.send(answer(first, layout.Header(1)))
	list := b.send(answer(second, layout.Header(1)))
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantJoined(t, &list[0], third, 5, 9, layout.Location{Handle: 4, Version: 1})
	if g := b.one(answer(third, layout.Header(9))); g.AtomicAck != uint64(layout.Told(1, 1)) {
		t.Errorf("the client sees %v", layout.Word(g.AtomicAck))
	}
	// The switch drops a response whose header only looks like the one that the client expects, and
	// is not that of its node. It also drops a response whose header names a successor.
	for _, was := range []layout.Word{layout.Header(1), layout.Superseded(9, layout.Location{Handle: 4, Version: 1})} {
		if list := b.send(answer(third, was)); len(list) != 0 {
			t.Errorf("%v left as %v", was, list)
		}
	}
}

// Tombstones neither absorb nor are absorbed. Nor is an append whose node was touched, or that has
// waited for its full time.
func TestNotAbsorbed(t *testing.T) {
	dead := func(b *box, i int, h layout.Handle) {
		data := make([]byte, 128)
		layout.Hardened.PutNode(data, layout.Tombstone(1), 7, nil)
		b.pass(b.write(i, va(h), data))
	}
	for _, c := range []struct {
		name          string
		second, third func(b *box)
	}{
		{"by a tombstone", func(b *box) { dead(b, 3, 4) }, func(b *box) { b.node(4, 5, 1, 7) }},
		{"a tombstone", func(b *box) { b.node(3, 4, 1, 7) }, func(b *box) { dead(b, 4, 5) }},
		{"a node that was touched", func(b *box) { b.node(3, 4, 1, 7) }, func(b *box) { b.node(4, 5, 1, 7) }},
		{"after its time", func(b *box) { b.node(3, 4, 1, 7) }, func(b *box) { b.node(4, 5, 1, 7) }},
	} {
		b := ready(t, rules.Rule{})
		b.node(2, 3, 1, 7)
		c.second(b)
		c.third(b)
		first, second, third := b.cas(2, 1, 1, 3, 1), b.cas(3, 1, 1, 4, 1), b.cas(4, 1, 1, 5, 1)
		b.one(first)
		b.send(second)
		b.send(third)
		b.send(answer(first, layout.Header(1)))
		switch c.name {
		case "a node that was touched":
			b.pass(b.write(1, va(5), nil))
		case "after its time":
			b.wait(2 * time.Millisecond)
		}
		for _, g := range b.send(answer(second, layout.Header(1))) {
			if g.BTH.Opcode == wire.RCCmpSwap && g.AtomicETH.VA == va(5) {
				t.Errorf("%s: left as %+v", c.name, g.AtomicETH)
			}
		}
		if s := b.m.Stats(); s.Absorbed != 0 {
			t.Errorf("%s: %+v", c.name, s)
		}
		b.send(answer(third, layout.Header(1)))
		if s := b.m.Stats(); s.Absorbed != 0 {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

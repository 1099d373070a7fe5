package cloversteer_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
)

// A client that got no response to an append sends a WRITE to its node on another connection before
// it looks where the node is. From then on the switch sends the append to the node that the client
// named, whether the append waits in the switch or arrives later: the client has seen that the
// append cannot succeed there, and would not learn that it has succeeded at another node.
func TestTouchedNodeIsNotSteered(t *testing.T) {
	for _, touched := range []bool{false, true} {
		want := va(2)
		if touched {
			want = va(1)
		}
		touch := func(b *box, h layout.Handle) {
			if touched {
				b.pass(b.write(4, va(h), nil))
			}
		}
		b := ready(t, rules.Rule{})
		b.node(2, 3, 1, 7)
		touch(b, 3)
		f := b.cas(2, 1, 1, 3, 1)
		wantVA(t, b.one(f), f, want)

		b = ready(t, rules.Rule{})
		b.node(2, 3, 1, 7)
		b.node(3, 4, 1, 7)
		first, second := b.cas(2, 1, 1, 3, 1), b.cas(3, 1, 1, 4, 1)
		wantVA(t, b.one(first), first, va(2))
		if list := b.send(second); len(list) != 0 {
			t.Fatalf("did not wait: %v", list)
		}
		touch(b, 4)
		list := b.send(answer(first, layout.Header(1)))
		if want == va(2) {
			want = va(3) // the newest node at that time
		}
		sent := 0
		for i := range list {
			if list[i].BTH.Opcode == wire.RCCmpSwap {
				sent++
				wantVA(t, &list[i], second, want)
			}
		}
		if sent != 1 {
			t.Errorf("touched %v: sent %d times", touched, sent)
		}
	}
}

// The same holds if the switch has no room for the other connection.
func TestTouchOnUntrackedConnection(t *testing.T) {
	b := newBoxOf(t, conntrack.Config{Settle: -1, Connections: 4}, rules.Rule{}).begun()
	b.node(2, 3, 1, 7)
	touch := b.write(4, va(3), nil)
	touch.BTH.DestQP = 0x77
	b.pass(touch)
	f := b.cas(2, 1, 1, 3, 1)
	wantVA(t, b.one(f), f, va(1))
}

// A FLUSH of a node is no WRITE to it: the append is steered, whether the switch has room for the
// connection of the FLUSH or not.
func TestFlushIsNoTouch(t *testing.T) {
	for _, tracked := range []bool{true, false} {
		b := newBoxOf(t, conntrack.Config{Settle: -1, Connections: 4}, rules.Rule{}).begun()
		b.node(2, 3, 1, 7)
		f := b.write(3, va(3), nil)
		f.BTH.Opcode, f.FETH.Placement, f.RETH.Length = wire.RCFlush, wire.FlushGlobal, 64
		if !tracked {
			f.BTH.DestQP = 0x77
		}
		b.pass(f)
		g := b.cas(2, 1, 1, 3, 1)
		wantVA(t, b.one(g), g, va(2))
	}
}

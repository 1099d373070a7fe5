package cloversteer_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// twoKeys is a box in which key 7 has the chain 1 → 2 and key 8 the chain 5 → 6.
func twoKeys(t *testing.T) *box {
	t.Helper()
	b := ready(t, rules.Rule{})
	b.node(2, 5, 1, 8)
	b.append(2, 5, 6, 8)
	return b
}

// Two threads share a connection. Their WRITEs and appends are interleaved in any order, and each
// append goes to the tail of the key of its own node. Afterwards the switch knows both chains.
func TestThreadsOnOneConnectionAreToldApart(t *testing.T) {
	for name, order := range map[string][2]int{"WRITEs in the order of the appends": {0, 1}, "the other way round": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			b := twoKeys(t)
			threads := [2]struct {
				key           uint64
				knows, n, end layout.Handle
			}{{7, 1, 3, 2}, {8, 5, 7, 6}}
			for _, i := range order {
				b.node(3, threads[i].n, 1, threads[i].key)
			}
			for _, th := range threads {
				f := b.cas(3, th.knows, 1, th.n, 1)
				wantVA(t, b.one(f), f, va(th.end))
				defer func() {
					wantVA(t, b.one(f), f, va(th.end)) // its retransmission, whatever requests came in between on this connection
				}()
				b.pass(answer(f, layout.Header(1)))
			}
			for _, th := range threads {
				f := b.read(4, th.knows)
				wantVA(t, b.one(f), f, va(th.n))
			}
		})
	}
}

// A thread's append waits for one of another client to the same key; another thread's append on the
// same connection comes behind it. The first goes to the node that its client named, the second to
// the tail of its own key.
func TestWaitingAppendOfAnotherThread(t *testing.T) {
	b := twoKeys(t)
	b.node(1, 4, 1, 7)
	under := b.cas(1, 2, 1, 4, 1)
	b.pass(under)
	b.node(3, 3, 1, 7)
	b.node(3, 7, 1, 8)
	first := b.cas(3, 1, 1, 3, 1)
	if list := b.send(first); len(list) != 0 {
		t.Fatalf("left: %v", list)
	}
	second := b.cas(3, 5, 1, 7, 1)
	list := b.send(second)
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], first, va(1))
	wantVA(t, &list[1], second, va(6))
	// The first append fails, because its node has a successor; the second succeeds, and the tails
	// of both keys are still known.
	b.pass(answer(under, layout.Header(1)))
	b.pass(answer(first, layout.Superseded(1, layout.Location{Handle: 2, Version: 1})))
	b.pass(answer(second, layout.Header(1)))
	for key, want := range map[layout.Handle]layout.Handle{1: 4, 5: 7} {
		f := b.read(4, key)
		wantVA(t, b.one(f), f, va(want))
	}
}

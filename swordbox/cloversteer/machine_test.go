package cloversteer_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// ready returns a box with a store, in which key 7 has the chain 1 → 2.
func ready(t testing.TB, r rules.Rule) *box {
	return newBox(t, r).begun()
}

// begun writes a store with the chain 1 → 2 of key 7.
func (b *box) begun() *box {
	b.format()
	b.node(1, 1, 1, 7)
	b.append(1, 1, 2, 7)
	return b
}

// wantVA checks the address of a packet, and that no other field has changed.
func wantVA(t *testing.T, got, f *wire.Frame, va uint64) {
	t.Helper()
	want := *f
	if want.BTH.Opcode == wire.RCCmpSwap {
		want.AtomicETH.VA = va
	} else {
		want.RETH.VA = va
	}
	if got.BTH != want.BTH || got.RETH != want.RETH || got.AtomicETH != want.AtomicETH {
		t.Errorf("left as %v %+v %+v, want %+v %+v", got, got.RETH, got.AtomicETH, want.RETH, want.AtomicETH)
	}
}

func TestAddressesByHand(t *testing.T) {
	for h := layout.Handle(1); h <= 16; h++ {
		if p, ok := space.Place(h); !ok || p.Server != 0 || base+uint64(p.Offset) != va(h) {
			t.Errorf("node %d is at %+v", h, p)
		}
	}
}

func TestAppendIsSteeredToTheTail(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	f := b.cas(2, 1, 1, 3, 1)
	wantVA(t, b.one(f), f, va(2))
	// A retransmission goes to the same node as the first copy (hole 32), also when there is a new
	// tail.
	wantVA(t, b.one(f), f, va(2))
	b.pass(answer(f, layout.Header(1)))
	b.append(3, 1, 4, 7)
	wantVA(t, b.one(f), f, va(2))
	if s := b.m.Stats(); s.SteeredAppends != 2 || s.Linked != 3 || s.Repeated != 2 {
		t.Errorf("%+v", s)
	}
}

func TestReadIsSteeredToTheTail(t *testing.T) {
	b := ready(t, rules.Rule{})
	f := b.read(2, 1)
	wantVA(t, b.one(f), f, va(2))
	b.pass(b.read(2, 2)) // node 2 is the tail
	b.append(3, 1, 3, 7)
	g := b.read(2, 1)
	wantVA(t, b.one(g), g, va(3))
	wantVA(t, b.one(f), f, va(2)) // as the switch decided for the first copy
}

// A READ of a node that is not known to be older than the tail is not steered; otherwise its reader
// could follow the chain in circles.
func TestReadOfUnknownPlaceIsNotSteered(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	b.one(b.cas(2, 1, 1, 3, 1)) // the append's response is lost
	f := b.read(1, 3)
	if list := b.send(f); len(list) != 0 { // the READ waits for that response
		t.Fatalf("left: %v", list)
	}
	list := b.wait(2 * time.Millisecond)
	if len(list) != 1 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], f, va(3))
	b.pass(f) // its retransmissions as well
}

// A READ waits for the append in flight, and is then sent to the appended node before the next
// append is sent.
func TestReadWaitsForTheAppend(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	first := b.cas(2, 1, 1, 3, 1)
	b.one(first)
	b.node(3, 4, 1, 7)
	second := b.cas(3, 1, 1, 4, 1)
	b.send(second)
	f, g := b.read(1, 1), b.read(4, 3)
	if list := append(b.send(f), b.send(g)...); len(list) != 0 {
		t.Fatalf("left: %v", list)
	}
	list := b.send(answer(first, layout.Header(1)))
	if len(list) != 4 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], f, va(3))
	wantVA(t, &list[1], g, va(3))
	wantVA(t, &list[2], second, va(3))
	wantVA(t, b.one(f), f, va(3)) // its retransmissions
	if s := b.m.Stats(); s.HeldReads != 2 || s.SteeredReads != 1 {
		t.Errorf("%+v", s)
	}
}

func TestUnansweredAppendIsNoTarget(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	first := b.cas(2, 1, 1, 3, 1)
	b.one(first)
	// An append waits until the one before it was answered.
	b.node(3, 4, 1, 7)
	second := b.cas(3, 1, 1, 4, 1)
	if list := b.send(second); len(list) != 0 {
		t.Fatalf("left: %v", list)
	}
	if list := b.send(second); len(list) != 0 { // its retransmission waits already
		t.Fatalf("left: %v", list)
	}
	list := b.send(answer(first, layout.Header(1)))
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], second, va(3))
	if s := b.m.Stats(); s.Held != 1 || s.Impatient != 1 {
		t.Errorf("%+v", s)
	}
}

// Requests that wait for a response that does not arrive are sent unchanged, and the tail is
// forgotten.
func TestHoldEnds(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	b.one(b.cas(2, 1, 1, 3, 1))
	b.node(3, 4, 1, 7)
	second := b.cas(3, 1, 1, 4, 1)
	b.send(second)
	list := b.wait(2 * time.Millisecond)
	if len(list) != 1 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], second, va(1))
	b.pass(second) // its retransmissions as well
	b.pass(answer(second, layout.Superseded(1, layout.Location{Handle: 2, Version: 1})))
	b.node(1, 5, 1, 7)
	b.pass(b.cas(1, 1, 1, 5, 1))
	if s := b.m.Stats(); s.Stalled != 1 || s.Expired > 1 {
		t.Errorf("%+v", s)
	}
}

// A request behind a waiting append makes the append leave at once, because the requests of a
// connection must keep their order.
func TestOrderOfAConnectionIsKept(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	b.one(b.cas(2, 1, 1, 3, 1))
	b.node(3, 4, 1, 7)
	second := b.cas(3, 1, 1, 4, 1)
	b.send(second)
	next := b.read(3, 4)
	list := b.send(next)
	if len(list) != 2 {
		t.Fatalf("left: %v", list)
	}
	wantVA(t, &list[0], second, va(1))
	wantVA(t, &list[1], next, va(4))
}

func TestFailureForgetsTheTail(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 3, 1, 7)
	f := b.cas(2, 1, 1, 3, 1)
	b.one(f)
	b.pass(answer(f, layout.Superseded(1, layout.Location{Handle: 9, Version: 1})))
	b.pass(b.read(3, 1))
	b.node(3, 4, 1, 7)
	b.pass(b.cas(3, 1, 1, 4, 1))
}

// Requests are not steered if the client would notice a difference, or if the switch does not know
// enough.
func TestNotSteered(t *testing.T) {
	for name, try := range map[string]func(b *box) *wire.Frame{
		"another version": func(b *box) *wire.Frame { b.node(2, 3, 1, 7); return b.cas(2, 1, 2, 3, 1) },
		"tail of a lower version": func(b *box) *wire.Frame {
			b.node(2, 3, 4, 7)
			f := b.cas(2, 2, 1, 3, 4)
			b.pass(f)
			b.pass(answer(f, layout.Header(1)))
			b.node(2, 4, 1, 7)
			f = b.cas(2, 3, 4, 4, 1)
			b.pass(f)
			b.pass(answer(f, layout.Header(4)))
			return b.read(3, 3)
		},
		"another rkey":          func(b *box) *wire.Frame { f := b.read(2, 1); f.RETH.RKey++; return f },
		"header only":           func(b *box) *wire.Frame { f := b.read(2, 1); f.RETH.Length = 8; return f },
		"another key":           func(b *box) *wire.Frame { b.node(2, 3, 1, 8); return b.cas(2, 1, 1, 3, 1) },
		"tail is written again": func(b *box) *wire.Frame { b.node(2, 2, 2, 9); return b.read(3, 1) },
		"tail of another size": func(b *box) *wire.Frame {
			b.pass(b.write(2, va(2), make([]byte, 64+56)))
			return b.read(3, 1)
		},
		"node of another server": func(b *box) *wire.Frame {
			b.pass(b.cas(2, 2, 1, 17, 1))
			return b.read(3, 1)
		},
		"node that was not seen": func(b *box) *wire.Frame {
			b.pass(b.cas(2, 2, 1, 9, 1))
			return b.read(3, 1)
		},
		"after a tombstone": func(b *box) *wire.Frame {
			data := make([]byte, 128)
			layout.Hardened.PutNode(data, layout.Tombstone(1), 7, nil)
			b.pass(b.write(2, va(3), data))
			f := b.cas(2, 2, 1, 3, 1)
			b.one(f)
			b.pass(answer(f, layout.Header(1)))
			return b.read(3, 1)
		},
		"memory was formatted": func(b *box) *wire.Frame {
			s := layout.Superblock{Format: layout.Hardened, Generation: 10, Space: space}
			data := make([]byte, layout.SuperblockLen)
			s.Put(data)
			b.pass(b.write(4, base, data))
			return b.read(3, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := ready(t, rules.Rule{})
			b.pass(try(b))
		})
	}
}

// A WRITE and its append are matched by handle, not by the last WRITE of the connection (hole 36).
func TestTwoWritesBeforeTwoAppends(t *testing.T) {
	b := ready(t, rules.Rule{})
	b.node(2, 5, 1, 8)
	b.append(2, 5, 6, 8) // key 8: 5 → 6
	b.node(3, 3, 1, 7)
	b.node(3, 7, 1, 8)
	f := b.cas(3, 1, 1, 3, 1)
	wantVA(t, b.one(f), f, va(2))
	b.pass(answer(f, layout.Header(1)))
	f = b.cas(3, 5, 1, 7, 1)
	wantVA(t, b.one(f), f, va(6))
}

func TestChoices(t *testing.T) {
	for _, c := range []struct {
		rule        rules.Rule
		write, read bool
	}{
		{rules.Rule{}, true, true},
		{rules.Rule{Steer: rules.SteerWrite}, true, false},
		{rules.Rule{Steer: rules.SteerRead}, false, true},
		{rules.Rule{Keys: []uint64{6, 7}}, true, true},
		{rules.Rule{Keys: []uint64{6, 8}}, false, false},
	} {
		b := ready(t, c.rule)
		f, want := b.read(2, 1), va(1)
		if c.read {
			want = va(2)
		}
		wantVA(t, b.one(f), f, want)
		b.node(2, 3, 1, 7)
		if f, want = b.cas(2, 1, 1, 3, 1), va(1); c.write {
			want = va(2)
		}
		wantVA(t, b.one(f), f, want)
	}
}

// appends sends nodes, steered appends with their responses, and steered READs; version returns the
// version of a node.
func appends(t testing.TB, version func(i int) layout.Version) (b *box, step func()) {
	b = ready(t, rules.Rule{})
	data := make([]byte, 128)
	layout.Hardened.PutNode(data, layout.Header(1), 7, []byte("x"))
	var bufs [4][]byte
	h := layout.Handle(3)
	w, f, r := b.write(2, va(h), data), b.cas(2, 1, 1, h, 1), b.read(2, 1)
	ack := answer(f, layout.Header(1))
	psn, i, before := w.BTH.PSN, 0, layout.Version(1)
	frames := []*wire.Frame{w, f, ack, r}
	return b, func() {
		v := version(i)
		w.BTH.PSN, w.RETH.VA = psn, va(h)
		layout.Hardened.PutNode(data, layout.Header(v), 7, nil)
		f.BTH.PSN, f.AtomicETH.SwapOrAdd = psn.Next(), uint64(layout.Superseded(1, layout.Location{Handle: h, Version: v}))
		ack.BTH.PSN, ack.AtomicAck = psn.Next(), uint64(layout.Header(before))
		r.BTH.PSN = psn.Add(2)
		psn, before = psn.Add(3), v
		for k, g := range frames {
			bufs[k] = g.AppendTo(bufs[k][:0])
			b.now += 1000
			b.out.Reset()
			b.sw.Frame(b.now, senderOf(g), frameOf(bufs[k]), &b.out)
		}
		if h++; h > 16 {
			h = 3
		}
		i++
	}
}

func sameVersion(int) layout.Version { return 1 }

// Requests, responses and their translation allocate no memory.
func TestNothingIsAllocated(t *testing.T) {
	for name, version := range map[string]func(int) layout.Version{
		"same version": sameVersion,
		"others":       func(i int) layout.Version { return layout.Version(i/14%100) + 2 },
	} {
		b, step := appends(t, version)
		for range 100 {
			step()
		}
		if n := testing.AllocsPerRun(1000, step); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if s := b.m.Stats(); s.SteeredAppends < 900 || s.SteeredReads < 900 || name == "others" && s.Answers < 500 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// BenchmarkSteeredAppend measures a node, a steered append, its response, and a steered READ.
func BenchmarkSteeredAppend(b *testing.B) {
	x, step := appends(b, sameVersion)
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	if s := x.m.Stats(); s.SteeredAppends+10 < uint64(b.N) {
		b.Fatalf("%+v", s)
	}
}

// When the answer to an append arrives, its node already has a successor that the switch cannot
// place in the chain. The node must not become the tail.
func TestLateAppendDoesNotBecomeTheTail(t *testing.T) {
	b := ready(t, rules.Rule{Steer: rules.SteerRead})
	for i, h := range []layout.Handle{3, 4, 5} {
		b.node(1+i, h, 1, 7)
	}
	late, unseen, last := b.cas(1, 8, 1, 3, 1), b.cas(2, 3, 1, 4, 1), b.cas(3, 4, 1, 5, 1) // node 8 is not known
	b.pass(late)
	b.pass(unseen)
	b.pass(last)
	b.pass(answer(last, layout.Header(1)))
	b.pass(answer(late, layout.Header(1)))
	f := b.read(4, 4)
	wantVA(t, b.one(f), f, va(5))
}

// While other rules are in force, the switch does not see all appends to the store, so the tails
// that it knows become stale. Under the former rules it must not steer to them. It learns the store
// again when a client reads the superblock.
func TestRulesThatComeBack(t *testing.T) {
	steer := rules.Rule{Server: addr(serverHost), Action: rules.Steer}
	ranged, keyed, published, read := steer, steer, steer, steer
	ranged.From, ranged.To = base, va(2)
	keyed.RKey = rkey + 1
	published.Mode = rules.Published
	read.Steer = rules.SteerRead
	track := rules.Rule{Server: addr(serverHost), From: va(1), To: va(3)}
	for name, c := range map[string]struct {
		between []rules.Rule
		kept    bool // the switch sees all appends, and knows the tail
	}{
		"no rule":        {nil, false},
		"another server": {[]rules.Rule{{Server: addr(second), Action: rules.Steer}}, false},
		"track":          {[]rules.Rule{{Server: addr(serverHost)}}, false},
		"published":      {[]rules.Rule{published}, false},
		"a range":        {[]rules.Rule{ranged}, false},
		"another R_Key":  {[]rules.Rule{keyed}, false},
		"track first":    {[]rules.Rule{track, steer}, false},
		"READs only":     {[]rules.Rule{read}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := ready(t, rules.Rule{})
			between, err := rules.NewSet(c.between)
			if err != nil {
				t.Fatal(err)
			}
			b.setRules(between)
			b.node(3, 3, 1, 7)
			f := b.cas(3, 2, 1, 3, 1)
			b.pass(f)
			b.pass(answer(f, layout.Header(1)))
			b.setRules(b.rules)
			want := va(1)
			if c.kept {
				want = va(3)
			}
			f = b.read(2, 1)
			wantVA(t, b.one(f), f, want)
			b.node(2, 4, 1, 7)
			f = b.cas(2, 1, 1, 4, 1)
			wantVA(t, b.one(f), f, want)
			if c.kept {
				return
			}
			b.pass(answer(f, layout.Superseded(1, layout.Location{Handle: 2, Version: 1})))
			b.format() // as a client's READ of the superblock would show
			b.node(1, 5, 1, 8)
			b.append(1, 5, 6, 8)
			f = b.read(2, 5)
			wantVA(t, b.one(f), f, va(6))
		})
	}
}

package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// A packet of a message whose first packet is not known joins the operation of the packet before it
// only if that one concerns all words, ends where the packet begins, and still counts for each
// word.
func TestWhichPartsJoin(t *testing.T) {
	const now = clock.Time(10)
	everything := atomiccache.Everything
	for name, c := range map[string]struct {
		change func(k *clientConn, x *extent, now *clock.Time)
		ops    uint32
	}{
		"the next part":         {func(*clientConn, *extent, *clock.Time) {}, 1},
		"the same part":         {func(_ *clientConn, x *extent, _ *clock.Time) { x.first, x.end = 10, 11 }, 1},
		"a known range":         {func(_ *clientConn, x *extent, _ *clock.Time) { x.va, x.n = 64, 8 }, 2},
		"behind a gap":          {func(_ *clientConn, x *extent, _ *clock.Time) { x.first, x.end = 12, 13 }, 2},
		"none before":           {func(k *clientConn, _ *extent, _ *clock.Time) { k.ops.head++ }, 1},
		"behind one of a word":  {func(k *clientConn, _ *extent, _ *clock.Time) { k.ops.newest().all = false }, 2},
		"behind one of a range": {func(k *clientConn, _ *extent, _ *clock.Time) { k.ops.newest().n = 8 }, 2},
		"much later":            {func(k *clientConn, _ *extent, now *clock.Time) { *now = now.Add(k.s.m.cfg.Words.Budget) }, 2},
		"before a new word":     {func(k *clientConn, _ *extent, _ *clock.Time) { k.s.m.words.Get(now, atomiccache.Key{VA: 128}) }, 2},
	} {
		k := &clientConn{s: &server{m: New(Config{})}, ops: clientOps{max: 4}}
		w := k.s.m.words.Get(1, atomiccache.Key{VA: 64})
		if !k.announce(now, &extent{10, 11, 0, everything}) || w.ClientPending() != 1 {
			t.Fatal("the first part is refused")
		}
		x, at := extent{11, 12, 0, everything}, now
		c.change(k, &x, &at)
		if !k.announcePart(at, &x) {
			t.Errorf("%s: it is refused", name)
		}
		if n := k.ops.tail - k.ops.head; n != c.ops || k.ops.newest().end != x.end {
			t.Errorf("%s: %d operations, the newest ends before %v, want %d and %v", name, n, k.ops.newest().end, c.ops, x.end)
		}
		if c.ops == 1 && k.ops.head == 0 && w.ClientPending() != 1 {
			t.Errorf("%s: the word waits for %d", name, w.ClientPending())
		}
	}
}

// A message is announced to its words if they allow it. A full list of operations forgets the oldest.
func TestAnnouncedMessages(t *testing.T) {
	m := New(Config{})
	k := &clientConn{s: &server{m: m}, ops: clientOps{max: 2}}
	w := m.words.Get(1, atomiccache.Key{VA: 64})
	for i := range 3 {
		x := extent{wire.PSN(10 * i), wire.PSN(10*i + 2), 64, 16}
		if !k.announce(2, &x) || !k.isCounted(3, &x) || w.ClientPending() != i+1 {
			t.Errorf("message %d: %d wait", i, w.ClientPending())
		}
	}
	if k.ops.head != 1 || k.ops.tail != 3 || k.ops.at(1).first != 10 {
		t.Errorf("operations %d to %d are left", k.ops.head, k.ops.tail)
	}
	if !k.isCounted(3, &extent{40, 42, 128, 8}) || k.isCounted(3, &extent{40, 42, 64, 8}) {
		t.Error("a message counts that was not announced, or one without words does not")
	}
	// An atomic under the proven key makes the word wait for the operations in flight: it is busy.
	w.Answered(3, w.Decide(3, 0, 5, wire.RCFetchAdd, 0, 0), 0)
	if d := w.Decide(3, 2, 5, wire.RCFetchAdd, 0, 0); d.Kind != atomiccache.Wait {
		t.Fatalf("the word is %v", w.State)
	}
	if k.announce(3, &extent{50, 51, 64, 8}) || k.ops.tail != 3 {
		t.Error("the word is busy, and the message passes")
	}
}

// begins says what is left of a WRITE behind its first packet.
func TestRestOfAWriteBegins(t *testing.T) {
	for length, want := range map[uint32]rest{
		2500: {va: 64 + 1000, n: 1500, first: 20, end: 23}, 1000: {va: 64 + 1000, first: 20, end: 21}, 10: {va: 64 + 1000, first: 20, end: 21},
	} {
		var r rest
		f := new(wire.Frame)
		f.BTH.Opcode, f.RETH, f.Payload = wire.RCWriteFirst, wire.RETH{VA: 64, Length: length}, make([]byte, 1000)
		if r.begin(f, 20); r != want {
			t.Errorf("%d bytes: %+v, want %+v", length, r, want)
		}
	}
}

// Room for an operation will come if the oldest one in a full list ends before the message that
// needs it.
func TestRoomForOperationsComes(t *testing.T) {
	l := &sequencer{}
	l.conn.ops.max = 2
	g := &placing{l: l}
	if l.conn.ops.add().end = 10; g.roomComes(20) {
		t.Error("there is room")
	}
	l.conn.ops.add().end = 30
	for first, want := range map[wire.PSN]bool{9: false, 10: true, 11: true} {
		if got := g.roomComes(first); got != want {
			t.Errorf("of a message from %v on: %v", first, got)
		}
	}
}

package netcache

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// asked sends a GET that becomes a probe, and n others that are held. It returns the number of the probe.
func (b *bed) asked(n uint16) (port, id uint16) {
	b.t.Helper()
	b.send(true, 40000, 1, "get foo\r\n")
	port, id = b.left1()
	for i := range n {
		if got := b.send(true, 40001, i, "get foo\r\n"); len(got) != 0 {
			b.t.Fatalf("GET %d goes on: %q", i, got)
		}
	}
	if b.m.Waiting() != int(n) || b.m.Stats().Held != uint64(n) {
		b.t.Fatalf("%d wait, %+v", b.m.Waiting(), b.m.Stats())
	}
	return port, id
}

// free checks that nothing waits, and no place is taken.
func (b *bed) free() {
	b.t.Helper()
	w := &b.m.caches[0].waits
	if len(w.free) != maxWaits || w.held != 0 || w.count != 0 {
		b.t.Errorf("%d of %d places are free, %d are held, %d wait", len(w.free), maxWaits, w.held, w.count)
	}
	for _, page := range b.m.caches[0].index.pages {
		for i := range page {
			if page[i].held != 0 {
				b.t.Errorf("a place holds %d GETs", page[i].held)
			}
		}
	}
}

// GETs that come while the probe is with the server are answered by the switch, each after a READ.
func TestHeldGetsAreAnswered(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(3)
	got := b.send(false, port, id, item)
	if s := b.m.Stats(); len(got) != 4 || s.Answered != 3 || s.Forwarded != 1 || s.Probes != 1 {
		t.Errorf("%q, %+v", got, s)
	}
	b.free()
}

// A write makes one held GET the next probe, and the others wait for its answer; so does the answer to the write.
func TestWritesMakeAHeldGetTheProbe(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(3)
	if got := b.send(true, 40002, 9, "set foo 0 0 1\r\nx\r\n"); len(got) != 2 || b.m.Waiting() != 2 {
		t.Errorf("%q, %d wait", got, b.m.Waiting())
	}
	if got := b.send(false, port, id, item); len(got) != 1 || b.m.Stats().Filled != 0 {
		t.Errorf("the answer to the former probe: %q, %+v", got, b.m.Stats())
	}
	if got := b.send(false, 40002, 9, "STORED\r\n"); len(got) != 2 || b.m.Waiting() != 1 {
		t.Errorf("%q, %d wait", got, b.m.Waiting())
	}
	probes := 0
	for _, f := range b.left {
		var p packet
		if p.parse(f); p.srcPort >= firstPort {
			port, id = p.srcPort, binary.BigEndian.Uint16(p.payload)
			probes++
		}
	}
	if probes != 1 {
		t.Errorf("%d probes", probes)
	}
	const changed = "VALUE foo 0 1\r\nx\r\nEND\r\n"
	if got := b.send(false, port, id, changed); len(got) != 2 || got[0] != changed || got[1] != changed {
		t.Errorf("%q", got)
	}
	b.free()
}

// A key without a value that fits does not hold GETs: those that wait go on, and later ones do not wait.
func TestUnfitAnswersHoldNothing(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(2)
	if got := b.send(false, port, id, "END\r\n"); len(got) != 3 || b.m.Stats().Forwarded != 3 {
		t.Errorf("%q, %+v", got, b.m.Stats())
	}
	b.free()
	for i := range uint16(3) {
		if got := b.send(true, 40001, 10+i, "get foo\r\n"); len(got) != 1 {
			t.Errorf("GET %d: %q", i, got)
		}
	}
	b.free()
}

// One packet lets a bounded number of held GETs go on. The others go on at once when the switch is asked again.
func TestOnePacketWakesABoundedNumber(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(maxHeld)
	b.send(false, port, id, "END\r\n")
	if n := maxHeld - maxWoken; b.m.Waiting() != n || b.m.Deadline() > b.now {
		t.Errorf("%d wait, want %d; the deadline is %v, at %v", b.m.Waiting(), n, b.m.Deadline(), b.now)
	}
	for i := 0; b.m.Waiting() > 0 && i < 2; i++ {
		b.step(b.m.Tick)
	}
	if s := b.m.Stats(); s.Slow != 0 || s.Forwarded != maxHeld+1 {
		t.Errorf("%+v", s)
	}
	b.free()
}

// GETs are held for a short time alone, and after that none is, until a probe was answered.
func TestHeldGetsGoToTheServerInTime(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(2)
	if at := b.m.Deadline(); at > b.now.Add(waitPatience) {
		t.Errorf("the deadline is %v, at %v", at, b.now)
	}
	b.left = nil
	b.now = b.now.Add(waitPatience)
	b.step(b.m.Tick)
	if got := b.texts(); len(got) != 2 || b.m.Stats().Slow != 2 {
		t.Errorf("%q, %+v", got, b.m.Stats())
	}
	b.free()
	if got := b.send(true, 40001, 10, "get foo\r\n"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	b.send(false, port, id, item)
	if got := b.send(true, 40001, 11, "get foo\r\n"); len(got) != 1 || got[0] != item {
		t.Errorf("%q", got)
	}
	b.send(true, 40002, 9, "set foo 0 0 1\r\nx\r\n")
	b.fill() // in time
	b.send(true, 40002, 10, "set foo 0 0 1\r\nx\r\n")
	b.holds(12)
}

// holds checks that a GET becomes a probe, and that the next one is held.
func (b *bed) holds(id uint16) {
	b.t.Helper()
	b.send(true, 40001, id, "get foo\r\n")
	if got := b.send(true, 40001, id+1, "get foo\r\n"); len(got) != 0 {
		b.t.Errorf("%q", got)
	}
}

// What ends a value while GETs wait for it lets each of them go on once.
func TestHeldGetsGoOn(t *testing.T) {
	for what, c := range map[string]struct {
		f    func(b *bed)
		left int // datagrams, with those that f sends
	}{
		"an operator who clears it":     {func(b *bed) { b.m.ClearTable(""); b.step(func(*pipeline.Ctx) {}); b.step(b.m.Tick) }, 1},
		"an answer to no request":       {func(b *bed) { b.send(false, 40001, 99, "STORED\r\n") }, 2},
		"another key in the same place": {func(b *bed) { b.takePlace() }, 2},
		"a connection that ends": {func(b *bed) {
			b.step(func(c *pipeline.Ctx) { b.m.Detach(c, b.m.caches[0].links[0].Key(), 1) })
			b.send(true, 40002, 9, "set foo 0 0 1\r\nx\r\n")
		}, 3},
	} {
		b := newBed(t)
		b.asked(2)
		b.left = nil
		c.f(b)
		if s := b.m.Stats(); len(b.left) != c.left {
			t.Errorf("%s: %d datagrams leave, want %d; %+v", what, len(b.left), c.left, s)
		}
		b.now = b.now.Add(waitPatience)
		b.step(b.m.Tick)
		if b.m.Waiting() != 0 {
			t.Errorf("%s: %d wait", what, b.m.Waiting())
		}
		b.free()
	}
}

// takePlace gives the place of foo to another key, whose GETs are more.
func (b *bed) takePlace() {
	b.t.Helper()
	x := &b.m.caches[0].index
	at := x.find(hashOf(begin, []byte("foo")))
	p := x.at(at)
	x.woken = true
	*p = place{hash: p.hash + 1, used: true}
	b.step(b.m.Tick)
}

// A rule holds a bounded number of GETs; the others go to the server.
func TestHeldGetsAreBounded(t *testing.T) {
	b := newBed(t)
	b.asked(maxHeld)
	if got := b.send(true, 40009, 1, "get foo\r\n"); len(got) != 1 || b.m.Stats().Busy != 1 {
		t.Errorf("%q, %+v", got, b.m.Stats())
	}
	k := b.m.caches[0]
	if n := testing.AllocsPerRun(100, func() {
		k.holds = k.waits.heldAll(k.holds[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	set, err := ruleOf("store=10.0.0.2 hot=1 items=16 size=128")
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetRules(set)
	b.step(func(*pipeline.Ctx) {})
	if s := b.m.Stats(); s.Dropped != maxHeld {
		t.Errorf("%+v", s)
	}
}

// Held GETs leave in the order in which they came, whatever happens to those before them.
func TestHeldList(t *testing.T) {
	w := newWaits()
	for i := range 4 {
		w.hold(w.begin(&packetio.Frame{}, 1, i, 0, 0, b0.Add(time.Duration(i))))
	}
	at := func(n int) int { return maxWaits - 1 - n }
	w.reads(at(1), 5)
	w.drop(at(2))
	if got := fmt.Sprint(w.heldAll(nil)); got != fmt.Sprint([]int{at(0), at(3)}) || w.held != 2 || w.count != 3 {
		t.Errorf("%v, %d held, %d wait", got, w.held, w.count)
	}
	x, held := w.late(b0.Add(waitPatience))
	if x == nil || !held || x.at != 0 {
		t.Errorf("%+v, held %v", x, held)
	}
	if x, held = w.late(b0.Add(waitPatience + 1)); x == nil || held || x.at != 1 {
		t.Errorf("%+v, held %v", x, held)
	}
	if w.end(at(1)) != nil || len(w.free) != maxWaits-1 {
		t.Errorf("%d are free", len(w.free))
	}
	if w.deadline() != b0.Add(waitPatience+3) || w.deadline() == clock.Never {
		t.Errorf("the deadline is %v", w.deadline())
	}
}

// GETs of a value that there is are not held, also while others that were held still wait for room for their READs. So a
// memory that answers fewer READs than there are GETs answers those all the same, and none is late because of them.
func TestWarmGetsAreNotHeld(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(40)
	b.held = true
	b.send(false, port, id, item)
	stored := b.wait // the answer to the WRITE; those to READs stay
	b.wait = nil
	b.step(func(c *pipeline.Ctx) { b.m.Owned(c, &pipeline.Parsed{Frame: stored[0]}) })
	waiting := b.m.caches[0].waits.held
	if len(stored) != 1 || waiting == 0 || waiting == 40 {
		t.Fatalf("%d answers to WRITEs, %d GETs wait for room", len(stored), waiting)
	}
	before := b.m.Stats()
	for i := range uint16(40) {
		if got := b.send(true, 40004, i, "get foo\r\n"); len(got) != 1 {
			t.Errorf("GET %d: %q", i, got)
		}
	}
	if s := b.m.Stats(); s.Held != before.Held || s.Busy != before.Busy+40 {
		t.Errorf("%+v", s)
	}
	b.held = false
	b.step(func(*pipeline.Ctx) {})
	if s := b.m.Stats(); s.Answered != 40 || s.Slow != 0 {
		t.Errorf("%+v", s)
	}
	b.free()
}

// Without a connection to the memory, held GETs go on at once.
func TestHeldGetsWithoutAConnection(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(3)
	b.held = true
	b.send(false, port, id, item) // the WRITE is in flight
	b.left = nil
	b.held, b.wait = false, nil
	b.step(func(c *pipeline.Ctx) { b.m.Detach(c, b.m.caches[0].links[0].Key(), 1) })
	if got := b.texts(); len(got) == 0 {
		t.Errorf("%q, %d wait", got, b.m.Waiting())
	}
	b.now = b.now.Add(waitPatience)
	b.step(b.m.Tick)
	b.free()
}

// After an answer that has taken longer than GETs wait, no GET of the key waits until one has come in time.
func TestSlowServersHoldNothing(t *testing.T) {
	b := newBed(t)
	port, id := b.asked(2)
	b.now = b.now.Add(waitPatience + time.Millisecond)
	b.step(b.m.Tick)
	b.send(false, port, id, item)
	b.send(true, 40002, 9, "set foo 0 0 1\r\nx\r\n")
	b.send(true, 40001, 20, "get foo\r\n")
	if got := b.send(true, 40001, 21, "get foo\r\n"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	b.free()
}

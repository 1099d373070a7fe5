package serialize

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// atomicWrite sets a word of the server.
func (c *conn) atomicWrite(off int, v uint64) verbs.SendWR {
	wr := c.faa(off, 0, 0)
	wr.Op, wr.SGL, wr.Swap = verbs.OpAtomicWrite, nil, v
	return wr
}

// An ATOMIC_WRITE of a word that the switch knows travels unchanged on its client's connection,
// waits for the atomics before it, and makes the switch forget the value (hole 39).
func TestAtomicWriteMakesTheWordUnknown(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	a, b := conns[0], conns[1]
	var passed []wire.Frame
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.BTH.Opcode.Is(wire.OpAtomic) {
			passed = append(passed, f)
		}
		return true
	}
	replaced := r.m.Stats().Replaced
	b.post(b.faa(64, 0x100, 0)) // replaced, and in flight when the ATOMIC_WRITE comes
	r.step(r.now + hop)
	a.post(a.atomicWrite(64, 0x7000))
	r.run(5 * time.Millisecond)
	a.done(verbs.Success)
	b.done(verbs.Success)
	if len(passed) != 1 || passed[0].BTH.Opcode != wire.RCAtomicWrite || passed[0].SrcAddr() != ipOf(1) || r.server.word(64) != 0x7000 {
		t.Errorf("these came to the server: %v; the word is %#x", passed, r.server.word(64))
	}
	if got := r.m.Stats().Replaced; got != replaced+1 {
		t.Errorf("%d were replaced, want 1", got-replaced)
	}
	passed = nil
	b.post(b.faa(64, 5, 0)) // the value is asked for
	r.run(5 * time.Millisecond)
	b.done(verbs.Success)
	if b.n.word(0) != 0x7000 || len(passed) != 1 || r.server.word(64) != 0x7005 {
		t.Errorf("the next atomic answers %#x, and leaves %#x; %d came to the server", b.n.word(0), r.server.word(64), len(passed))
	}
}

// The answer of an ATOMIC_WRITE is lost, the request comes again after another client has changed
// the word: the switch answers it as the server did, and nothing is written again.
func TestAtomicWriteIsAnsweredAgain(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	a, b := conns[0], conns[1]
	lost, requests := 0, 0
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		if !up && port == r.server.port && f.BTH.Opcode == wire.RCAtomicWrite {
			requests++
		}
		if !up && port == a.n.port && f.BTH.Opcode == wire.RCReadResponseOnly && lost == 0 {
			lost++
			return false
		}
		return true
	}
	a.post(a.atomicWrite(64, 0x7000))
	r.run(time.Millisecond)
	a.done()
	b.post(b.faa(64, 1, 0))
	r.run(200 * time.Millisecond)
	a.done(verbs.Success)
	b.done(verbs.Success)
	if got := r.server.word(64); got != 0x7001 || lost != 1 || b.n.word(0) != 0x7000 {
		t.Errorf("the word is %#x behind %d losses; the other client got %#x", got, lost, b.n.word(0))
	}
	if again := r.m.Stats().AnsweredAgain; requests != 1 || again != 1 {
		t.Errorf("%d ATOMIC_WRITEs came to the server; %d were answered again", requests, again)
	}
}

// An ATOMIC_WRITE under a key that may write, and not do atomics, proves no right to atomics: a
// rule that moves everything leaves an atomic under that key where it is refused, and no other
// client suffers.
func TestAtomicWriteDoesNotMove(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	from := map[netip.Addr]int{}
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.BTH.Opcode == wire.RCAtomicWrite {
			from[f.SrcAddr()]++
		}
		return true
	}
	for i := range uint64(4) {
		c.post(c.faa(128, 0x100, 0), c.atomicWrite(64, i))
		r.run(time.Millisecond)
		c.done(verbs.Success, verbs.Success)
		if got := r.server.word(64); got != i {
			t.Errorf("round %d: the word is %#x", i, got)
		}
	}
	if s := r.m.Stats(); s.Moved < 3 || len(from) != 1 || from[ipOf(1)] != 4 {
		t.Errorf("%d requests were moved; ATOMIC_WRITEs came from %v, want 4 from %v", s.Moved, from, ipOf(1))
	}
	var k keys
	k.prove(7, rightOf(wire.RCAtomicWrite), 64, 8)
	if k.covers(7, rightOf(wire.RCFetchAdd), 64, 8) || !k.covers(7, rightOf(wire.RCWriteOnly), 64, 8) {
		t.Error("an ATOMIC_WRITE proves another right than that to write")
	}
}

package serialize

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// masked are atomics of the low byte of a word of the server.
func (c *conn) masked(off int, swap uint64, to int) verbs.SendWR {
	wr := c.cas(off, 0, swap, to)
	wr.Op, wr.SwapMask = verbs.OpMaskedCmpSwap, 0xff
	return wr
}

func (c *conn) maskedAdd(off int, add uint64, to int) verbs.SendWR {
	wr := c.faa(off, add, to)
	wr.Op, wr.CompareAddMask = verbs.OpMaskedFetchAdd, 0x80
	return wr
}

// A masked atomic on a word that the switch knows travels unchanged on its client's connection,
// waits for the atomics before it, and makes the switch forget the value: the next atomic is
// executed by the server, and not replaced (hole 39).
func TestMaskedAtomicMakesTheWordUnknown(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	a, b := conns[0], conns[1]
	var passed []wire.Frame
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.BTH.Opcode.Has(wire.HasAtomicETH) {
			passed = append(passed, f)
		}
		return true
	}
	if r.server.word(64) != 6 {
		t.Fatalf("the word is %d", r.server.word(64))
	}
	for i, wr := range []verbs.SendWR{a.masked(64, 0x1fe, 8), a.maskedAdd(64, 3, 8)} {
		replaced := r.m.Stats().Replaced
		passed = nil
		b.post(b.faa(64, 0x100, 0)) // replaced, and in flight when the masked one comes
		r.step(r.now + hop)
		a.post(wr)
		r.run(5 * time.Millisecond)
		a.done(verbs.Success)
		b.done(verbs.Success)
		if want := []uint64{0x106, 0x2fe}[i]; a.n.word(8) != want {
			t.Errorf("%v answers %#x, want %#x", wr.Op, a.n.word(8), want)
		}
		if len(passed) != 1 || !passed[0].BTH.Opcode.Has(wire.HasAtomicMasks) || passed[0].Masks.Swap != wr.SwapMask || passed[0].SrcAddr() != ipOf(1) {
			t.Errorf("%v: these atomics came to the server: %v", wr.Op, passed)
		}
		if got := r.m.Stats().Replaced; got != replaced+1 {
			t.Errorf("%v: %d were replaced, want 1", wr.Op, got-replaced)
		}
		passed = nil
		want := r.server.word(64)
		b.post(b.faa(64, 0, 0)) // the value is asked for
		r.run(5 * time.Millisecond)
		b.done(verbs.Success)
		if b.n.word(0) != want || len(passed) != 1 {
			t.Errorf("%v: the next atomic answers %#x, want %#x; %d came to the server", wr.Op, b.n.word(0), want, len(passed))
		}
	}
	if got := r.server.word(64); got != 0x201 {
		t.Errorf("the word is %#x", got)
	}
}

// Under a rule that moves everything, a masked atomic stays on its client's connection.
func TestMaskedAtomicDoesNotMove(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	from := map[netip.Addr]int{}
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == r.server.port && f.BTH.Opcode == wire.RCMaskedFetchAdd {
			from[f.SrcAddr()]++
		}
		return true
	}
	for i := range uint64(4) {
		c.post(c.faa(64, 0x100, 0), c.maskedAdd(64, 0x90, 8))
		r.run(time.Millisecond)
		c.done(verbs.Success, verbs.Success)
		if got, want := c.n.word(8), 0x100*(i+1)+0x90*i&0xff; got != want {
			t.Errorf("round %d: %#x, want %#x", i, got, want)
		}
	}
	if s := r.m.Stats(); s.Moved < 3 || len(from) != 1 || from[ipOf(1)] != 4 {
		t.Errorf("%d requests were moved; masked atomics came from %v, want 4 from %v", s.Moved, from, ipOf(1))
	}
}

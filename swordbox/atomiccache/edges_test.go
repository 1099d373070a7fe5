package atomiccache

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// The first and the last byte of a range decide which words it touches: in a range of one byte, and
// in one of so many pages that all words are looked at.
func TestEdgesOfRanges(t *testing.T) {
	r := newTester(t, Config{})
	r.Get(r.now, Key{1, 0x10000})
	for _, c := range []struct {
		va   uint64
		n    uint32
		want int
	}{
		{0x10000, 1, 1},
		{0x10007, 1, 1},
		{0xffff, 1, 0},
		{0x10008, 1, 0},
		{0x10007, 1 << 20, 1}, // longer than the words have pages
		{0x10008, 1 << 20, 0},
		{0, 0x10001, 1},
		{0, 0x10000, 0},
	} {
		if got := r.Overlapping(nil, 1, c.va, c.n); len(got) != c.want {
			t.Errorf("%d bytes at %#x touch %d words", c.n, c.va, len(got))
		}
		for most := range 2 {
			if ok, _ := r.AtMost(1, c.va, c.n, most); ok != (c.want <= most) {
				t.Errorf("%d bytes at %#x touch at most %d words: %v", c.n, c.va, most, ok)
			}
		}
	}
	// What no word has been put into counts as no word.
	r = newTester(t, Config{})
	r.Get(r.now, Key{0, 0x1000})
	if ok, _ := r.AtMost(0, 0, Everything, 1); !ok {
		t.Error("a table of one word has two")
	}
}

// A word that was reset is as a new one: it leaves Pass only when all requests from before the reset
// are answered, a refused WRITE is forgotten, and the responses from before say nothing.
func TestResetWordIsNew(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 0)
	_, guilty := r.cas(0x1000, 0, 1, Write)
	w.Refused(r.now, guilty)
	if !w.Literal {
		t.Fatal("a refused WRITE is tried again")
	}
	epoch := w.Epoch
	r.now = 1000
	w.Reset(r.now)
	if w.Epoch == epoch || w.Literal || w.Proven(goodKey) {
		t.Errorf("after a reset: %+v", w)
	}
	proof := w.Decide(r.now, r.now, goodKey, wire.RCCmpSwap, 0, 1)
	w.Answered(r.now, proof, 0)
	for _, c := range []struct {
		clean clock.Time
		want  Kind
	}{{999, Client}, {1000, Client}, {1001, Shared}} {
		d := w.Decide(r.now, c.clean, goodKey, wire.RCCmpSwap, 0, 1)
		if d.Kind != c.want {
			t.Errorf("clean since %d, reset at 1000: %v, want %v", c.clean, d.Kind, c.want)
		}
		w.Answered(r.now, d, 0)
	}
	if d := w.Decide(r.now, r.now, goodKey, wire.RCCmpSwap, 1, 2); d.Kind != Write {
		t.Errorf("a WRITE is still refused: %v", d.Kind)
	}
}

// Reset of a server resets all its words, and no other.
func TestResetOfAServer(t *testing.T) {
	r := newTester(t, Config{})
	words := []*Word{r.known(0x1000, 5), r.known(0x2000, 6), r.known(0x3000, 7)}
	other := r.known(0x4000, 8)
	other.Server = 2
	r.Table.Reset(r.now, 1)
	for _, w := range words {
		if w.State != Pass {
			t.Errorf("%#x is %v", w.VA, w.State)
		}
	}
	if other.State != Known {
		t.Errorf("a word of another server is %v", other.State)
	}
}

// Changed returns a word once for those that wait. What happens to the word afterwards is reported
// only if another operation waits.
func TestChangedOnlyForThoseThatWait(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 0)
	_, first := r.cas(0x1000, 0, 1, Write)
	if d := w.Foreign(r.now); d.Kind != Wait {
		t.Fatalf("%v", d.Kind)
	}
	w.Answered(r.now, first, 0)
	if got := r.changed(); got != "0x1000 Closing" {
		t.Fatalf("changed: %q", got)
	}
	d := w.Foreign(r.now)
	if w.State != Busy {
		t.Fatalf("%v", w.State)
	}
	w.Answered(r.now, d, 0) // the word leaves Busy
	if got := r.changed(); got != "" || w.State != Unknown {
		t.Errorf("nothing waits, but %q has changed", got)
	}
}

// The server executes atomics under the key of a refused operation no more: a refused WRITE of the
// whole word ends the proof, an answer under the same key does not.
func TestProofEnds(t *testing.T) {
	r := newTester(t, Config{Budget: 1000})
	_, late := r.cas(0x1000, 0, 0, Client)
	r.now = 5000
	w := r.known(0x1000, 7)
	w.Answered(r.now, late, 0)
	if w.State != Known || w.Value != 7 || !w.Proven(goodKey) {
		t.Errorf("after a late answer under the same key: %v", w.State)
	}
	d := w.Touch(r.now, goodKey, transform.Piece{Mask: ^uint64(0)})
	if d.Kind != Shared {
		t.Fatal(d.Kind)
	}
	if w.Refused(r.now, d); w.Proven(goodKey) {
		t.Error("a refused WRITE is no proof")
	}
	// One under another key than the proven one leaves the proof.
	w = r.known(0x2000, 7)
	d = w.Touch(r.now, goodKey, transform.Piece{Mask: ^uint64(0)})
	w.proven.rkey = goodKey + 1
	if w.Refused(r.now, d); !w.Proven(goodKey + 1) {
		t.Error("the proof of another key has ended")
	}
}

// An operation on a client's connection that was not executed does not count any more.
func TestUndoneOfClients(t *testing.T) {
	r := newTester(t, Config{})
	w := r.Get(r.now, Key{1, 0x1000})
	d := w.Foreign(r.now)
	if w.Undone(r.now, d); w.ClientPending() != 0 || !w.Idle() {
		t.Errorf("%d in flight", w.ClientPending())
	}
	if w.Undone(r.now, Decision{Kind: Wait}); w.ClientPending() != 0 || w.State != Pass {
		t.Errorf("%d in flight", w.ClientPending())
	}
}

package atomiccache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// tester is a table with a clock.
type tester struct {
	*Table
	t   *testing.T
	now clock.Time
}

func newTester(t *testing.T, cfg Config) *tester { return &tester{New(cfg), t, 1} }

func (r *tester) cas(va, compare, swap uint64, want Kind) (*Word, Decision) {
	r.t.Helper()
	w := r.Get(r.now, Key{1, va})
	if w == nil {
		r.t.Fatalf("no room for %#x", va)
	}
	d := w.Decide(r.now, r.now+1, goodKey, wire.RCCmpSwap, compare, swap)
	if d.Kind != want {
		r.t.Fatalf("CAS of %#x: %v in %v, want %v", va, d.Kind, w.State, want)
	}
	return w, d
}

// known brings a word into state Known, with a value.
func (r *tester) known(va, value uint64) *Word {
	r.t.Helper()
	w, d := r.cas(va, 0, 0, Client)
	w.Answered(r.now, d, 0)
	r.now++
	w, d = r.cas(va, 0, 0, Shared)
	w.Answered(r.now, d, value)
	if w.State != Known || w.Value != value {
		r.t.Fatalf("%#x is %v %d", va, w.State, w.Value)
	}
	return w
}

func (r *tester) changed() string {
	var list []string
	for w := r.Changed(r.now); w != nil; w = r.Changed(r.now) {
		list = append(list, fmt.Sprintf("%#x %v", w.VA, w.State))
	}
	return strings.Join(list, ", ")
}

// The life of a lock word: its value becomes known, the lock is acquired, another CAS fails, and a
// WRITE releases the lock.
func TestLock(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 0)
	_, took := r.cas(0x1000, 0, 0xabc, Write)
	_, vain := r.cas(0x1000, 0, 0xdef, EmptyWrite)
	if took.Prior != 0 || took.Value != 0xabc || vain.Prior != 0xabc || w.Pending != 2 {
		t.Errorf("took %+v, failed %+v", took, vain)
	}
	if d := w.Touch(r.now, goodKey, transform.Piece{Mask: ^uint64(0)}); d.Kind != Shared {
		t.Errorf("release: %v", d.Kind)
	}
	if d := w.Decide(r.now, r.now, goodKey, wire.RCFetchAdd, 0, 5); d.Kind != Write || d.Prior != 0 || d.Value != 5 {
		t.Errorf("FAA: %+v", d)
	}
	if d := w.Touch(r.now, goodKey, transform.Piece{Bits: 0x700, Mask: 0xff00}); d.Kind != Shared || w.Value != 0x705 {
		t.Errorf("partial WRITE: %v, %#x", d.Kind, w.Value)
	}
}

// The table never sends an operation under an R_Key that is not proven on the shared connection. A
// newly proven R_Key replaces the former one, because the same address under two R_Keys may be two
// words.
func TestKeys(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 7)
	for _, k := range []uint32{100, 101} {
		d := w.Decide(r.now, r.now, k, wire.RCCmpSwap, 0, 1)
		if d.Kind != Client || w.State != Busy {
			t.Fatalf("key %d: %v in %v", k, d.Kind, w.State)
		}
		if wait := w.Touch(r.now, k, transform.Piece{}); wait.Kind != Wait {
			t.Errorf("WRITE while busy: %v", wait.Kind)
		}
		w.Answered(r.now, d, 3)
		if w.State != Unknown || !w.Proven(k) || r.changed() != "0x1000 Unknown" {
			t.Errorf("key %d: %v", k, w.State)
		}
	}
	if w.Proven(goodKey) || w.Proven(100) {
		t.Error("two keys for one address")
	}
	d := w.Decide(r.now, r.now, 101, wire.RCCmpSwap, 0, 1)
	if d.Kind != Shared {
		t.Errorf("proven key: %v", d.Kind)
	}
	w.Refused(r.now, d)
	if w.Proven(101) {
		t.Error("a refused key is not to be trusted")
	}
	if d := w.Decide(r.now, r.now, 101, wire.RCCmpSwap, 0, 1); d.Kind != Client {
		t.Errorf("key that does not work any more: %v", d.Kind)
	}
}

// A late response under another R_Key makes the value unknown.
func TestLateResponseUnderAnotherKey(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 7)
	epoch := w.Epoch
	w.prove(100)
	if w.State != Unknown || w.Epoch == epoch || w.Proven(goodKey) {
		t.Errorf("%v in epoch %d, before %d", w.State, w.Epoch, epoch)
	}
}

// Operations that wait for a dead client are sent on clients' connections after Patience, and the
// word stays there for HoldOff.
func TestPatience(t *testing.T) {
	r := newTester(t, Config{Patience: 100, HoldOff: 1000, Budget: time.Hour})
	w, first := r.cas(0x1000, 0, 1, Client)
	_, dead := r.cas(0x1000, 0, 1, Client)
	w.Answered(r.now, first, 0)
	r.cas(0x1000, 0, 1, Wait)
	if r.Deadline() != r.now.Add(100) || r.changed() != "" {
		t.Errorf("deadline %v at %v", r.Deadline(), r.now)
	}
	r.now = r.Deadline()
	if got := r.changed(); got != "0x1000 Pass" {
		t.Errorf("changed: %s", got)
	}
	_, d := r.cas(0x1000, 0, 1, Client)
	w.Answered(r.now, d, 0)
	r.now += 999
	_, d = r.cas(0x1000, 0, 1, Client)
	w.Answered(r.now, d, 0)
	r.now++
	r.cas(0x1000, 0, 1, Wait)
	w.Answered(r.now, dead, 0)
	if got := r.changed(); got != "0x1000 Unknown" || r.Deadline() != clock.Never {
		t.Errorf("changed: %s", got)
	}
}

// Without a response an operation counts for as long as a NIC would retry it, not forever.
func TestBudget(t *testing.T) {
	r := newTester(t, Config{Budget: 1000, Patience: 1, HoldOff: 1})
	w, proof := r.cas(0x1000, 0, 1, Client)
	r.cas(0x1000, 0, 1, Client) // never answered
	w.Answered(r.now, proof, 0)
	for r.now = 10; r.now < 1000; r.now += 10 {
		if w.look(r.now); w.ClientPending() != 1 {
			t.Fatalf("%d pending at %v", w.ClientPending(), r.now)
		}
	}
	r.now = 2000
	r.cas(0x1000, 0, 1, Shared)
	r.now = 100000
	if w.Undone(r.now, proof); w.ClientPending() != 0 {
		t.Error("an old answer counts")
	}
}

// A response that arrives after its word was evicted does not prove its R_Key for the word that
// uses the slot now.
func TestLateResponse(t *testing.T) {
	r := newTester(t, Config{Max: 1, Budget: 1000})
	old, late := r.cas(0x1000, 0, 1, Client)
	r.now = 5000
	old.look(r.now)
	w := r.Get(r.now, Key{1, 0x2000})
	if w != old || w.VA != 0x2000 {
		t.Fatalf("%+v", w)
	}
	old.Answered(r.now, late, 0)
	if w.Proven(goodKey) || w.ClientPending() != 0 {
		t.Error("another word's answer counts")
	}
}

func TestClientAll(t *testing.T) {
	r := newTester(t, Config{})
	a, b := r.known(0x1000, 0), r.known(0x1008, 0)
	_, d := r.cas(0x1008, 0, 1, Write)
	if got := r.ClientAll(r.now, 1, 0xff8, 100); got.Kind != Wait || a.State != Known || b.State != Closing {
		t.Fatalf("%v, %v %v", got.Kind, a.State, b.State)
	}
	r.cas(0x1008, 0, 1, Wait)
	b.Answered(r.now, d, 0)
	if got := r.changed(); got != "0x1008 Closing" {
		t.Errorf("changed: %s", got)
	}
	long := r.ClientAll(r.now, 1, 0xff8, 100)
	if long.Kind != Client || a.State != Busy || b.State != Busy {
		t.Fatalf("%v, %v %v", long.Kind, a.State, b.State)
	}
	if again := r.ClientAll(r.now, 1, 0x1000, 1); again.Kind != Wait {
		t.Errorf("another one at the same time: %v", again.Kind)
	}
	if other := r.ClientAll(r.now, 2, 0x1000, 1); other.Kind != Client {
		t.Errorf("at another server: %v", other.Kind)
	}
	young, _ := r.cas(0x1010, 0, 1, Client)
	r.EndAll(r.now, long, 1, 0xff8, 100)
	if a.State != Unknown || b.State != Unknown || young.ClientPending() != 1 {
		t.Errorf("%v %v, %d", a.State, b.State, young.ClientPending())
	}
}

// For a region that allows atomics and no WRITEs, the atomics on its words are not replaced again
// after the first refusal.
func TestLiteral(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 0)
	_, guilty := r.cas(0x1000, 0, 1, Write)
	_, behind := r.cas(0x1000, 0, 1, EmptyWrite)
	w.Refused(r.now, guilty)
	w.Undone(r.now, behind)
	for range 3 {
		_, d := r.cas(0x1000, 0, 1, Shared)
		w.Answered(r.now, d, 0)
	}
	if d := w.Touch(r.now, goodKey, transform.Piece{Mask: ^uint64(0)}); d.Kind != Shared || w.State != Unknown || w.Pending != 1 {
		t.Errorf("WRITE: %v in %v", d.Kind, w.State)
	}
}

func TestReset(t *testing.T) {
	r := newTester(t, Config{})
	w, other := r.known(0x1000, 5), r.known(0x2000, 6)
	_, d := r.cas(0x1000, 5, 1, Write)
	other.Server = 1
	r.Table.Reset(r.now, 2)
	if w.State != Known {
		t.Error("another server's word was reset")
	}
	r.Table.Reset(r.now, 1)
	w.Undone(r.now, d)
	if w.State != Pass || w.Proven(goodKey) || w.Epoch == d.Epoch || w.Pending != 0 {
		t.Errorf("%+v", w)
	}
	r.now += 10
	r.cas(0x1000, 0, 1, Client)
}

// A word with operations in flight is never evicted; then there is no room.
func TestEviction(t *testing.T) {
	const n = 8
	r := newTester(t, Config{Max: n})
	for i := range uint64(n) {
		w := r.known(0x1000+8*i, 0)
		if i%2 == 0 {
			w.Decide(r.now, r.now, goodKey, wire.RCFetchAdd, 0, 1)
		}
	}
	for i := range uint64(4 * n) {
		r.Get(r.now, Key{1, 0x9000 + 8*i})
	}
	for i := range uint64(n) {
		if w := r.Lookup(Key{1, 0x1000 + 8*i}); (w != nil) != (i%2 == 0) {
			t.Errorf("word %d: %v", i, w != nil)
		}
	}
	if c := r.Counters(); c.Words != n || c.Evicted == 0 || c.Made != c.Evicted+n {
		t.Errorf("%+v", c)
	}
	r = newTester(t, Config{Max: 2})
	r.cas(0x1000, 0, 0, Client)
	r.cas(0x1008, 0, 0, Client)
	if w := r.Get(r.now, Key{1, 0x1010}); w != nil || r.Counters().Refused != 1 {
		t.Error("a word with operations on their way was given up")
	}
	// The test never ends these operations, and does not use their words again. The words become
	// idle when no NIC retransmits any more.
	r.now = r.now.Add(2 * r.cfg.Budget)
	if w := r.Get(r.now, Key{1, 0x1010}); w == nil || r.Counters().Evicted != 1 {
		t.Errorf("words that no client uses keep the table full: %+v", r.Counters())
	}
	if w := r.Get(r.now, Key{1, 0x1001}); w != nil {
		t.Error("an address that no atomic can have")
	}
}

// Overlapping finds the same words as a search of all words.
func TestOverlapping(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	r := newTester(t, Config{Max: 200})
	var all []Key
	for i := range 500 { // some of these words are idle again
		k := Key{uint16(rnd.IntN(2)), uint64(rnd.IntN(4000)) * 8}
		if i == 0 {
			k = Key{0, ^uint64(7)}
		}
		r.Get(r.now, k)
	}
	r.Each(func(w *Word) { all = append(all, w.Key) })
	if len(all) != 200 {
		t.Fatalf("%d words", len(all))
	}
	for range 3000 {
		va, n := uint64(rnd.IntN(34000)), uint32(rnd.IntN(300))
		if rnd.IntN(4) == 0 {
			n = uint32(rnd.IntN(1 << 20))
		}
		if rnd.IntN(10) == 0 {
			va = -uint64(rnd.IntN(20))
		}
		var want []uint64
		for _, k := range all {
			if k.Server == 1 && n > 0 && k.VA+7 >= va && (k.VA <= va+uint64(n)-1 || va+uint64(n)-1 < va) {
				want = append(want, k.VA)
			}
		}
		slices.Sort(want)
		var got []uint64
		for _, w := range r.Overlapping(nil, 1, va, n) {
			got = append(got, w.VA)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d bytes at %#x: %x, want %x", n, va, got, want)
		}
	}
}

func TestGrace(t *testing.T) {
	var g Grace
	for _, s := range []struct {
		now         clock.Time
		next, acked wire.PSN
		want        clock.Time
	}{
		{10, 5, 5, 10},  // nothing outstanding
		{20, 8, 5, 10},  // the operations 5 to 7 are outstanding
		{30, 9, 7, 10},  // and operation 8
		{40, 12, 8, 20}, // the operation at 20 is answered
		{50, 12, 11, 20},
		{60, 17, 13, 40}, // the next mark
		{70, 17, 17, 70}, // over the wrap
	} {
		if got := g.Clean(s.now, wire.PSN(0xfffff4).Add(int(s.next)), wire.PSN(0xfffff4).Add(int(s.acked))); got != s.want {
			t.Errorf("at %d: %d, want %d", s.now, got, s.want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{{Max: -1}, {Max: MaxWords + 1}, {Budget: -1}, {Patience: -1}, {HoldOff: -1}} {
		if c.Validate() == nil {
			t.Errorf("%+v passes", c)
		}
	}
}

// The index gives the same results as a map.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0x81, 0x82, 3, 4, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		var x index
		m := map[Key]uint32{}
		for i, c := range b {
			k := Key{uint16(c >> 6 & 1), uint64(c&0x3f) << (c & 7)}
			if c&0x80 != 0 {
				x.remove(k)
				delete(m, k)
			} else {
				x.put(k, uint32(i+1))
				m[k] = uint32(i + 1)
			}
			if x.get(k) != m[k] || x.n != len(m) {
				t.Fatalf("step %d", i)
			}
		}
		for k, v := range m {
			if x.get(k) != v {
				t.Fatalf("%v: %d, want %d", k, x.get(k), v)
			}
		}
	})
}

// A table of full size allocates no memory.
func TestAllocatesNothing(t *testing.T) {
	r := newTester(t, Config{Max: 300, Patience: 10, HoldOff: 1})
	i := uint64(0)
	var buf []*Word
	step := func() {
		i++
		r.now += 3
		k := Key{1, 8 * (i * 7919 % 1000)}
		w := r.Get(r.now, k)
		if w == nil {
			return
		}
		d := w.Decide(r.now, r.now, goodKey, wire.RCFetchAdd, 0, 1)
		w.Answered(r.now, d, 0)
		long := r.ClientAll(r.now, 1, k.VA&^0xff, 256)
		r.EndAll(r.now, long, 1, k.VA&^0xff, 256)
		buf = r.Overlapping(buf[:0], 1, k.VA&^0xfff, 4096)
		for r.Changed(r.now) != nil {
			continue
		}
	}
	for range 5000 {
		step()
	}
	if n := testing.AllocsPerRun(5000, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	t := New(Config{})
	for i := range uint64(65536) {
		w := t.Get(1, Key{1, 8 * i})
		w.Answered(1, w.Decide(1, 1, goodKey, wire.RCFetchAdd, 0, 1), 0)
	}
	var i uint64
	b.ReportAllocs()
	for b.Loop() {
		i += 7919
		w := t.Lookup(Key{1, 8 * (i & 0xffff)})
		w.Answered(3, w.Decide(3, 3, goodKey, wire.RCFetchAdd, 0, 1), i)
	}
}

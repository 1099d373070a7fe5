package atomiccache

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// AtMost and Touches agree with Overlapping, and AtMost looks at nothing outside of the addresses
// that the words of a server have had.
func TestAtMostAndTouches(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, words := range []int{3, 100} { // a search by pages costs more, or less, than one of all words
		r := newTester(t, Config{})
		for range words {
			r.Get(r.now, Key{1, 0x10000 + uint64(rnd.IntN(4000))*8})
			r.Get(r.now, Key{0, 0x10000 + uint64(rnd.IntN(4000))*8})
		}
		for range 3000 {
			va, n := 0x10000+uint64(rnd.IntN(33000))-100, uint32(rnd.IntN(1<<rnd.IntN(16)))
			touched := r.Overlapping(nil, 1, va, n)
			r.Each(func(w *Word) {
				if w.Server == 1 && w.Touches(va, n) != slices.Contains(touched, w) {
					t.Errorf("%d bytes at %#x touch %#x: %v", n, va, w.VA, w.Touches(va, n))
				}
			})
			for _, most := range []int{0, 1, len(touched) - 1, len(touched), len(touched) + 1} {
				if most < 0 {
					continue
				}
				if ok, looked := r.AtMost(1, va, n, most); ok != (len(touched) <= most) || !ok && looked <= most {
					t.Fatalf("%d bytes at %#x touch %d words, at most %d: %v, %d looked at", n, va, len(touched), most, ok, looked)
				}
			}
		}
		all := len(r.Overlapping(nil, 1, 5, Everything))
		if ok, _ := r.AtMost(1, 5, Everything, all); !ok {
			t.Errorf("everything has more than %d words", all)
		}
		if ok, _ := r.AtMost(1, 5, Everything, all-1); ok {
			t.Errorf("everything has less than %d words", all)
		}
	}
	r := newTester(t, Config{})
	for _, va := range []uint64{0x2000, 0x1000, 0x3000} {
		r.Get(r.now, Key{2, va})
	}
	for _, c := range []struct {
		server uint16
		va     uint64
		n      uint32
		looks  bool
	}{
		{2, 0xff8, 8, false},
		{2, 0xff8, 9, true},
		{2, 0x3007, 1, true},
		{2, 0x3008, 1, false},
		{2, 0x1800, 8, true},
		{2, 0x1000, 0, false},
		{1, 0x1000, 8, false},
		{3, 0x1000, 8, false},
	} {
		if ok, looked := r.AtMost(c.server, c.va, c.n, 5); !ok || (looked > 0) != c.looks {
			t.Errorf("%+v: %v, %d looked at", c, ok, looked)
		}
	}
	w := r.Lookup(Key{2, 0x2000})
	for va, want := range map[uint64]bool{0x1ff7: false, 0x1ff8: true, 0x2007: true, 0x2008: false} {
		if w.Touches(va, 9) != want {
			t.Errorf("9 bytes at %#x touch the word: %v", va, !want)
		}
	}
}

// An operation that only the client's connection may carry goes there at once in Pass, and waits for
// operations on the shared connection; then the word says that it has changed.
func TestForeign(t *testing.T) {
	r := newTester(t, Config{})
	w := r.Get(r.now, Key{1, 0x1000})
	d := w.Foreign(r.now)
	if d.Kind != Client || w.ClientPending() != 1 || w.Idle() || !w.Counts(r.now, d) {
		t.Errorf("%v, %d in flight", d.Kind, w.ClientPending())
	}
	w.Answered(r.now, d, 0)
	if w.ClientPending() != 0 || !w.Idle() {
		t.Errorf("%d in flight", w.ClientPending())
	}
	w = r.known(0x2000, 7)
	first := w.Decide(r.now, r.now, goodKey, wire.RCFetchAdd, 0, 1)
	if first.Kind == Client || first.Kind == Wait {
		t.Fatalf("%v", first.Kind)
	}
	if d := w.Foreign(r.now); d.Kind != Wait || r.Counters().Waits != 1 || w.State == Known {
		t.Errorf("%v in %v", d.Kind, w.State)
	}
	if got := r.changed(); got != "" {
		t.Errorf("changed while an operation is in flight: %s", got)
	}
	w.Answered(r.now, first, 7)
	if got := r.changed(); got == "" || r.changed() != "" {
		t.Errorf("changed: %q", got)
	}
	if d := w.Foreign(r.now); d.Kind != Client {
		t.Errorf("%v in %v", d.Kind, w.State)
	}
}

// A word that was used since the last search for room is spared once. One that leaves the table is
// not found by its address, its page or its deadline.
func TestSecondChance(t *testing.T) {
	r := newTester(t, Config{Max: 3})
	for i := range uint64(3) {
		r.Get(r.now, Key{1, 0x1000 + 8*i})
	}
	r.Get(r.now, Key{1, 0x9000}) // passes over all three, and takes the place of the first
	r.Lookup(Key{1, 0x1008}).Decide(r.now, r.now, goodKey, wire.RCCmpSwap, 0, 0)
	for _, c := range []struct {
		va   uint64
		here bool
	}{{0x1000, false}, {0x1008, true}, {0x1010, true}, {0x9000, true}} {
		if (r.Lookup(Key{1, c.va}) != nil) != c.here {
			t.Errorf("%#x is in the table: %v", c.va, !c.here)
		}
	}
	r.Get(r.now, Key{1, 0xa000}) // the second is in use, so the third goes
	if r.Lookup(Key{1, 0x1008}) == nil || r.Lookup(Key{1, 0x1010}) != nil {
		t.Error("a word that is used leaves")
	}
	if got := r.Overlapping(nil, 1, 0x1000, 0x1000); len(got) != 1 || got[0].VA != 0x1008 {
		t.Errorf("%d words on the page", len(got))
	}
	if c := r.Counters(); c.Words != 3 || c.Evicted != 2 || c.Made != 5 {
		t.Errorf("%+v", c)
	}
	if r.Deadline() != clock.Never {
		t.Errorf("deadline %v", r.Deadline())
	}
}

// Bounds of the configuration, and its defaults.
func TestDefaultsOfATable(t *testing.T) {
	want := Config{Max: 65536, Budget: 5 * time.Second, Patience: time.Millisecond, HoldOff: 50 * time.Millisecond, Fresh: 100 * time.Microsecond}
	if got := (Config{}).withDefaults(); got != want {
		t.Errorf("%+v", got)
	}
	one := Config{Max: 1, Budget: 1, Patience: 1, HoldOff: 1, Fresh: 1}
	if got := one.withDefaults(); got != one {
		t.Errorf("%+v", got)
	}
	for _, c := range []Config{{}, {Max: MaxWords}} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	if c := (Config{Fresh: -1}); c.Validate() == nil {
		t.Error("a negative Fresh passes")
	}
}

// The entries of a table whose places overlap are all found after any of them was removed.
func TestIndexWithCollisions(t *testing.T) {
	var x index
	x.entries = make([]entry, minIndex)
	byHome := map[int][]Key{}
	for va := uint64(0); len(byHome[60])+len(byHome[61])+len(byHome[63]) < 24; va += 8 {
		k := Key{1, va}
		if h := x.home(k); h == 60 || h == 61 || h == 63 {
			byHome[h] = append(byHome[h], k)
		}
	}
	keys := slices.Concat(byHome[60], byHome[63], byHome[61]) // around the end of the table
	for drop := range keys {
		x := index{}
		for i, k := range keys {
			x.put(k, uint32(i+1))
		}
		x.put(keys[drop], 77) // replaces
		if x.get(keys[drop]) != 77 || x.n != len(keys) {
			t.Fatalf("%d entries", x.n)
		}
		x.remove(keys[drop])
		x.remove(keys[drop])
		for i, k := range keys {
			want := uint32(i + 1)
			if i == drop {
				want = 0
			}
			if x.get(k) != want {
				t.Fatalf("without entry %d, entry %d is %d", drop, i, x.get(k))
			}
		}
		if x.n != len(keys)-1 {
			t.Fatalf("%d entries", x.n)
		}
	}
	for i := range uint32(20 * minIndex) { // it grows several times
		x.put(Key{2, 8 * uint64(i)}, i+1)
	}
	for i := range uint32(20 * minIndex) {
		if got := x.get(Key{2, 8 * uint64(i)}); got != i+1 {
			t.Fatalf("entry %d of many is %d", i, got)
		}
	}
	var empty index
	empty.remove(keys[0])
	if empty.get(keys[0]) != 0 {
		t.Error("an empty index has an entry")
	}
}

// The switch answers a CAS that fails, or lets it wait, only while it knows the value, has no change
// in flight, has heard of the server lately and knows the key; Changed returns the word when the
// value that the CAS waits for may have come.
func TestTellAndAwait(t *testing.T) {
	r := newTester(t, Config{})
	w := r.known(0x1000, 7)
	fresh := clock.Time(r.cfg.Fresh)
	for _, c := range []struct {
		what    string
		later   clock.Time
		rkey    uint32
		compare uint64
		tells   bool
		awaits  bool
	}{
		{"a CAS that fails", 0, goodKey, 8, true, true},
		{"a CAS that succeeds", 0, goodKey, 7, false, false},
		{"another key", 0, otherKey, 8, false, false},
		{"just heard of", fresh, goodKey, 8, true, true},
		{"not heard of", fresh + 1, goodKey, 8, false, true},
	} {
		v, ok := w.Tell(r.now+c.later, c.rkey, c.compare)
		if ok != c.tells || ok && v != 7 {
			t.Errorf("%s: tells %d, %v", c.what, v, ok)
		}
		if got := w.Await(r.now+c.later, c.rkey, c.compare); got != c.awaits {
			t.Errorf("%s: awaits %v", c.what, got)
		}
	}
	if got := r.changed(); got != "" {
		t.Errorf("changed before the value did: %s", got)
	}
	d := w.Decide(r.now, r.now, goodKey, wire.RCFetchAdd, 0, 1) // to 8
	if _, ok := w.Tell(r.now, goodKey, 7); ok {
		t.Error("it tells of a change that is in flight")
	}
	if got := r.changed(); got != "0x1000 known" && got != "0x1000 Known" {
		t.Errorf("changed: %q", got)
	}
	w.Answered(r.now, d, 7)
	if v, ok := w.Tell(r.now, goodKey, 7); !ok || v != 8 {
		t.Errorf("tells %d, %v", v, ok)
	}
	unknown := r.Get(r.now, Key{1, 0x2000})
	if _, ok := unknown.Tell(r.now, goodKey, 7); ok || unknown.Await(r.now, goodKey, 7) {
		t.Error("it tells of a word that it does not know")
	}
}

// Operations on clients' connections are counted for the rest of their interval and the next one.
func TestIntervalsOfClients(t *testing.T) {
	r := newTester(t, Config{Budget: 10})
	r.now = 25
	w, first := r.cas(0x1000, 0, 0, Client)
	for _, c := range []struct {
		now            clock.Time
		counts, recent bool
	}{{29, true, true}, {30, true, false}, {39, true, false}, {40, false, false}, {90, false, false}} {
		if w.Counts(c.now, first) != c.counts || r.IsRecent(c.now, first) != c.recent || (w.ClientPending() == 1) != c.counts {
			t.Errorf("at %d: counts %v, recent %v, %d in flight", c.now, w.Counts(c.now, first), r.IsRecent(c.now, first), w.ClientPending())
		}
	}
	r.now = 95
	_, second := r.cas(0x1000, 0, 0, Client)
	w.Answered(r.now, first, 0) // too late: it is not counted any more
	if w.ClientPending() != 1 || !w.Counts(r.now, second) || w.Counts(r.now, Decision{Kind: Shared, serial: second.serial, window: second.window}) {
		t.Errorf("%d in flight", w.ClientPending())
	}
	w.Answered(r.now, second, 0)
	w.Undone(r.now, second)
	if w.ClientPending() != 0 {
		t.Errorf("%d in flight", w.ClientPending())
	}
}

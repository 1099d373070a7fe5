package kv

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// failing is a Map whose writes answer err, if it is not nil, and are executed nevertheless if done
// is true.
type failing struct {
	*Map
	err  error
	done bool
}

func (f *failing) Put(key uint64, value []byte, deadline clock.Time) error {
	if f.err == nil || f.done {
		if err := f.Map.Put(key, value, deadline); err != nil {
			return err
		}
	}
	return f.err
}

func (f *failing) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if errors.Is(f.err, ErrLost) {
		return dst[:0], f.err
	}
	return f.Map.Get(key, dst, deadline)
}

// ticking is a clock that goes on by a millisecond whenever it is read.
func ticking() func() clock.Time {
	now := clock.Time(0)
	return func() clock.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// What an error says about a PUT decides which values the history explains afterwards: that of the
// PUT, the one before it, or both.
func TestRecordedOutcomes(t *testing.T) {
	for _, c := range []struct {
		err                 error
		loss                bool
		executed, unchanged bool // the history explains it
	}{
		{nil, false, true, false},
		{ErrTimeout, false, true, true},
		{errors.New("other"), false, true, true},
		{errors.Join(ErrTimeout, ErrLost), false, true, true},
		{errors.Join(ErrTimeout, ErrNoEffect), false, false, true},
		{ErrNotFound, false, false, false},
		{ErrExists, false, false, false},
		{ErrLost, false, false, false},
	} {
		for _, executed := range []bool{false, true} {
			h, f := NewHistory(), &failing{Map: NewMap(100)}
			r := Record(f, h, 0, ticking())
			if err := r.Insert(1, r.Value(1, 20), 0); err != nil {
				t.Fatal(err)
			}
			f.err, f.done = c.err, executed
			if err := r.Put(1, r.Value(1, 20), 0); !errors.Is(err, c.err) {
				t.Errorf("%v: %v", c.err, err)
			}
			if f.err = nil; !executed && c.err == nil {
				continue
			}
			if _, err := r.Get(1, nil, 0); err != nil {
				t.Fatal(err)
			}
			want := c.unchanged
			if executed {
				want = c.executed
			}
			if err := h.Check(MostStates); (err == nil) != want || r.Err() != nil {
				t.Errorf("a PUT that answers %q, executed %v: %v, %v", c.err, executed, err, r.Err())
			}
		}
	}
}

// The other answers: of a key that does not exist, of one that exists, and of one that is lost.
func TestRecordedRefusals(t *testing.T) {
	h, f := NewHistory(), &failing{Map: NewMap(100)}
	r := Record(f, h, 0, ticking())
	want := func(err, kind error) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%v, want %v", err, kind)
		}
		if err := h.Check(MostStates); err != nil {
			t.Error(err)
		}
	}
	_, err := r.Get(1, nil, 0)
	want(err, ErrNotFound)
	want(r.Put(1, r.Value(1, 20), 0), ErrNotFound)
	want(r.Delete(1, 0), ErrNotFound)
	want(r.Insert(1, r.Value(1, 20), 0), nil)
	want(r.Insert(1, r.Value(1, 20), 0), ErrExists)
	want(r.Delete(1, 0), nil)
	h.Loss(0, Anywhere)
	want(r.Insert(1, r.Value(1, 20), 0), nil)
	h.Loss(0, Anywhere)
	f.err = ErrLost
	want(r.Put(1, r.Value(1, 20), 0), ErrLost)
	_, err = r.Get(1, nil, 0)
	want(err, ErrLost)
	if h.Len() != 9 || r.Err() != nil {
		t.Errorf("%d operations; %v", h.Len(), r.Err())
	}
	if err := Record(struct{ Store }{NewMap(100)}, h, 0, ticking()).Upsert(1, r.Value(1, 20), 0); err == nil || h.Len() != 9 {
		t.Errorf("an UPSERT of a store without: %v, %d operations", err, h.Len())
	}
}

// Where is asked after each successful write, and of nothing else. It decides whether a loss
// explains that the key is lost.
func TestRecordedWhere(t *testing.T) {
	for _, c := range []struct {
		where Places // 0: not known
		good  bool
	}{{1, true}, {2, false}, {0, true}} {
		h, f := NewHistory(), &failing{Map: NewMap(100)}
		r := Record(f, h, 0, ticking())
		asked := 0
		if c.where != 0 {
			r.Where = func() Places { asked++; return c.where }
		}
		err := r.Insert(1, r.Value(1, 20), 0)
		if _, missing := r.Get(2, nil, 0); err != nil || !errors.Is(missing, ErrNotFound) {
			t.Fatal(err, missing)
		}
		_, err = r.Get(1, nil, 0)
		if refused := r.Insert(1, r.Value(1, 20), 0); err != nil || !errors.Is(refused, ErrExists) {
			t.Fatal(err, refused)
		}
		if c.where != 0 && asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		h.Loss(0, 1)
		f.err = ErrLost
		if _, err := r.Get(1, nil, 0); !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		if err := h.Check(MostStates); (err == nil) != c.good {
			t.Errorf("written to servers %b, of which 1 has lost its memory: %v", c.where, err)
		}
	}
}

// No two writes have the same value, also of several clients.
func TestRecordedValues(t *testing.T) {
	seen := map[uint64]bool{}
	for client := range 4 {
		r := Record(NewMap(100), NewHistory(), client, ticking())
		for range 5 {
			v := r.Value(9, 33)
			n, err := CheckValue(9, v)
			if err != nil || len(v) != 33 || seen[n] {
				t.Errorf("client %d: %d bytes with number %x, seen before %v; %v", client, len(v), n, seen[n], err)
			}
			seen[n] = true
		}
	}
}

// Err is the first value that no client wrote. The message names the wrong byte.
func TestRecordedWrongValues(t *testing.T) {
	m := NewMap(100)
	r := Record(m, NewHistory(), 0, ticking())
	bad := r.Value(1, 40)
	bad[37]++
	for key, value := range map[uint64][]byte{1: bad, 2: r.Value(3, 20), 3: r.Value(3, 20), 4: []byte("short")} {
		if err := m.Insert(key, value, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, key := range []uint64{3, 1, 2, 3, 4} {
		if _, err := r.Get(key, nil, 0); err != nil {
			t.Error(err)
		}
		switch err := r.Err(); {
		case i == 0 && err != nil:
			t.Errorf("a right value: %v", err)
		case i > 0 && (!errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "byte 37 ")):
			t.Errorf("after %d GETs: %v", i+1, err)
		}
	}
}

// held is a guard that checks that each Lock has its Unlock.
type held struct {
	t     *testing.T
	locks int
	in    bool
}

func (g *held) Lock() {
	if g.in {
		g.t.Error("locked twice")
	}
	g.in = true
	g.locks++
}

func (g *held) Unlock() {
	if !g.in {
		g.t.Error("unlocked without a lock")
	}
	g.in = false
}

// The guard is held for each change of the history.
func TestHistoryGuard(t *testing.T) {
	g := &held{t: t}
	h := NewHistory()
	h.Guard = g
	r := Record(NewMap(100), h, 0, ticking())
	if err := r.Insert(1, r.Value(1, 20), 0); err != nil || g.in || g.locks != 2 {
		t.Errorf("%v; held %v after %d locks", err, g.in, g.locks)
	}
	h.Loss(0, 1)
	h.End()
	if g.in || g.locks != 4 {
		t.Errorf("held %v after %d locks", g.in, g.locks)
	}
}

// A history that has no order is printed: each operation with its client, value, answer and times,
// in the order of the answers.
func TestHistoryText(t *testing.T) {
	m, h, now := NewMap(100), NewHistory(), ticking()
	a, b := Record(m, h, 0, now), Record(m, h, 7, now)
	value := func(n uint64) []byte { return MakeValue(5, n, 20) }
	h.invoke(5, 3, put(0x99), 0)
	h.Loss(clock.Time(400*time.Microsecond), 1)
	h.Loss(clock.Time(500*time.Microsecond), 1)
	for _, err := range []error{
		a.Insert(5, value(0x10), 0), b.Upsert(5, value(0x11), 0), a.Put(5, value(0x12), 0), b.Delete(5, 0), m.Insert(5, value(0x10), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Get(5, nil, 0); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"history of key 5 is not linearizable:",
		"  client  0  INSERT       10  ok               0  1ms to 2ms",
		"  client  7  UPSERT       11  ok               0  3ms to 4ms",
		"  client  0  PUT          12  ok               0  5ms to 6ms",
		"  client  7  DELETE        0  ok               0  7ms to 8ms",
		"  client  7  GET           0  ok              10  9ms to 10ms",
		"  client  3  PUT          99  unknown          0  0s to …",
		"  client -1  loss          0  unknown          0  400µs to …",
		"  client -2  loss          0  unknown          0  500µs to …",
		"",
	}, "\n")
	if err := h.Check(MostStates); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Of a long history the last 60 operations are printed, and of several keys the first that has no
// order is named.
func TestHistoryTextIsBounded(t *testing.T) {
	h := NewHistory()
	for key := range uint64(30) {
		for i := range uint64(70) {
			h.answer(key, h.invoke(key, int(i), insert(1+i), 0), ok(), 0)
		}
	}
	err := h.Check(MostStates)
	if err == nil || !strings.Contains(err.Error(), "key 0 ") || strings.Count(err.Error(), "INSERT") != 60 || !strings.Contains(err.Error(), "client 69 ") {
		t.Errorf("got\n%v", err)
	}
}

// A loss makes no key, an operation without an answer does neither, and what a GET has found says
// nothing about where the key is.
func TestNoKeyFromNothing(t *testing.T) {
	for _, of := range []Places{1, Anywhere} {
		for name, ops := range map[string][]op{
			"after a loss":               {{1, insert(1), is(exists), 6, 7}},
			"after a PUT":                {{1, put(1), ok(), 6, 7}},
			"after an unknown DELETE":    {{0, del, is(unknown), 0, 1}, {1, insert(1), is(exists), 6, 7}},
			"an unknown DELETE finds it": {{0, del, is(unknown), 6, 7}, {1, insert(1), is(exists), 8, 9}},
		} {
			h := NewHistory()
			for _, o := range ops {
				if o.call > 5 && len(h.losses) == 0 {
					h.Loss(5, of)
				}
				h.answer(1, h.invoke(1, o.client, o.in, o.call), o.out, o.back)
			}
			if h.Check(MostStates) == nil {
				t.Errorf("%s of memory of %b: a key exists that no client inserted", name, of)
			}
		}
	}
	for name, before := range map[string][]op{
		"a GET":                      {{0, insert(1), output{where: 2}, 0, 1}, {0, get, output{value: 1, where: Anywhere}, 2, 3}},
		"a PUT that finds no key":    {{0, put(1), output{outcome: notFound, where: Anywhere}, 0, 1}},
		"an INSERT that finds a key": {{0, insert(1), output{where: 2}, 0, 1}, {0, insert(2), output{outcome: exists, where: Anywhere}, 2, 3}},
	} {
		if build(append(before, op{1, get, is(lost), 6, 7}), 5).Check(MostStates) == nil {
			t.Errorf("after %s, a key is lost that has nothing on the server", name)
		}
	}
}

// Losses above 63 are told apart from earlier ones as far as they must be: each can lose a key.
func TestManyLosses(t *testing.T) {
	for _, losses := range []int{62, 63, 64, 65, 70} {
		h := NewHistory()
		for range losses {
			h.Loss(0, 1)
		}
		h.answer(1, h.invoke(1, 0, insert(1), 0), output{where: 1}, 0)
		h.Loss(0, 1)
		h.answer(1, h.invoke(1, 0, get, 0), is(lost), 0)
		if err := h.Check(MostStates); err != nil {
			t.Errorf("loss %d: %v", losses+1, err)
		}
	}
}

// shelf is a scanner that returns the keys of a list, whatever they are.
type shelf struct {
	*Map
	keys  []uint64
	wrong uint64 // the value of this key is another's
	err   error
}

func (s *shelf) Scan(_ uint64, _ int, f func(uint64, []byte) bool, _ clock.Time) error {
	for _, key := range s.keys {
		own := key
		if key == s.wrong {
			own++
		}
		if !f(key, MakeValue(own, key, 20)) {
			return errors.New("the scan was ended")
		}
	}
	return s.err
}

// A recorded scan notices keys in the wrong order, keys before its beginning, and too many keys.
func TestRecordedScanOrder(t *testing.T) {
	for _, c := range []struct {
		keys []uint64
		from uint64
		n    int
		want error
	}{
		{[]uint64{5, 6, 9}, 5, 3, nil},
		{[]uint64{5, 6, 9}, 4, 4, nil},
		{nil, 4, 0, nil},
		{[]uint64{5, 6, 9}, 4, 2, ErrScan},
		{[]uint64{5, 6, 9}, 6, 5, ErrScan},
		{[]uint64{5, 9, 6}, 4, 5, ErrScan},
		{[]uint64{5, 5}, 4, 5, ErrScan},
		{[]uint64{5, 77}, 4, 5, ErrValue},
		{[]uint64{5, 77, 6}, 4, 5, ErrValue}, // the first error stays
		{[]uint64{6, 5, 77}, 4, 5, ErrScan},
	} {
		r := Record(&shelf{Map: NewMap(10), keys: c.keys, wrong: 77}, NewHistory(), 0, ticking())
		if err := r.Scan([]uint64{5, 6, 9, 77}, c.from, c.n, 0); err != nil || !errors.Is(r.Err(), c.want) {
			t.Errorf("%d keys from %d on: %v: %v, %v; want %v", c.n, c.from, c.keys, err, r.Err(), c.want)
		}
	}
	// Other keys belong to other clients, whose values it does not know.
	r := Record(&shelf{Map: NewMap(10), keys: []uint64{5, 77}, wrong: 77}, NewHistory(), 0, ticking())
	if err := r.Scan([]uint64{5}, 0, 9, 0); err != nil || r.Err() != nil {
		t.Errorf("%v, %v", err, r.Err())
	}
	if err := Record(struct{ Store }{NewMap(10)}, NewHistory(), 0, ticking()).Scan(nil, 0, 1, 0); err == nil {
		t.Error("a store without scans")
	}
}

// A recorded scan is a GET of each key that it has returned or passed over, at some moment between
// its call and its end.
func TestRecordedScan(t *testing.T) {
	for name, c := range map[string]struct {
		there, shown []uint64 // the keys that exist, and those that the scan returns
		from         uint64
		n            int
		fails        bool
		recorded     int
		good         bool
	}{
		"all":                         {there: []uint64{2, 4}, shown: []uint64{2, 4}, n: 9, recorded: 5, good: true},
		"one is missing":              {there: []uint64{2, 4}, shown: []uint64{4}, n: 9, recorded: 5},
		"one too many":                {there: []uint64{2, 4}, shown: []uint64{2, 3, 4}, n: 9, recorded: 5},
		"the first is missing":        {there: []uint64{2, 4}, shown: []uint64{4}, from: 2, n: 9, recorded: 4},
		"before the beginning":        {there: []uint64{2, 4}, shown: []uint64{4}, from: 3, n: 9, recorded: 3, good: true},
		"behind the last of a full n": {there: []uint64{2, 4}, shown: []uint64{2}, n: 1, recorded: 2, good: true},
		"a full n with a gap":         {there: []uint64{1, 2, 4}, shown: []uint64{1, 4}, n: 2, recorded: 4},
		"no keys are wanted":          {there: []uint64{2, 4}, n: 0, recorded: 5},
		"it fails":                    {there: []uint64{2, 4}, n: 9, fails: true, good: true},
	} {
		h := NewHistory()
		s := &shelf{Map: NewMap(100), keys: c.shown}
		r := Record(s, h, 0, ticking())
		for _, key := range c.there {
			if err := r.Insert(key, MakeValue(key, key, 20), 0); err != nil {
				t.Fatal(err)
			}
		}
		if c.fails {
			s.err = ErrTimeout
		}
		if err := r.Scan([]uint64{1, 2, 3, 4, 5}, c.from, c.n, 0); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if n := h.Len() - len(c.there); n != c.recorded {
			t.Errorf("%s: %d keys are recorded, want %d", name, n, c.recorded)
		}
		if err := h.Check(MostStates); (err == nil) != c.good || r.Err() != nil {
			t.Errorf("%s: %v, %v", name, err, r.Err())
		}
	}
	// The last key may be the largest number.
	h := NewHistory()
	r := Record(&shelf{Map: NewMap(100)}, h, 0, ticking())
	if err := r.Insert(math.MaxUint64, MakeValue(math.MaxUint64, 1, 20), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Scan([]uint64{math.MaxUint64}, 0, 9, 0); err != nil || h.Check(MostStates) == nil {
		t.Errorf("a scan without the last key: %v", err)
	}
}

// A key that appears during a scan may be in it or not; one that was there before must
// be.
func TestRecordedScanTakesTime(t *testing.T) {
	for _, c := range []struct {
		during, shown, good bool
	}{{true, true, true}, {true, false, true}, {false, true, true}, {false, false, false}} {
		h := NewHistory()
		s := &late{shelf: shelf{Map: NewMap(100)}}
		r := Record(s, h, 0, ticking())
		insert := func() {
			if err := r.Insert(3, MakeValue(3, 3, 20), 0); err != nil {
				t.Fatal(err)
			}
		}
		if c.shown {
			s.keys = []uint64{3}
		}
		if c.during {
			s.during = insert
		} else {
			insert()
		}
		if err := r.Scan([]uint64{3}, 0, 9, 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Check(MostStates); (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
		if err := h.Check(MostStates); err != nil && !strings.Contains(err.Error(), fmt.Sprintf("not found %8x  3ms to 4ms", 0)) {
			t.Errorf("the scan is printed as\n%v", err)
		}
	}
}

// late is a shelf in whose scans something happens first.
type late struct {
	shelf
	during func()
}

func (s *late) Scan(from uint64, n int, f func(uint64, []byte) bool, deadline clock.Time) error {
	if s.during != nil {
		s.during()
	}
	return s.shelf.Scan(from, n, f, deadline)
}

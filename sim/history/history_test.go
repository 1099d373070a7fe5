package history

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// step is an event of a small history: the call of an operation, or the answer to the n-th call.
type step struct {
	call   *Op
	answer int // number of the call
	value  uint64
}

func call(op Op) step               { return step{call: &op} }
func answered(i int, v uint64) step { return step{answer: i, value: v} }
func cas(compare, swap uint64) Op   { return Op{Kind: CmpSwap, Compare: compare, Value: swap} }
func write(v uint64) Op             { return Op{Kind: Write, Value: v} }
func add(v uint64) Op               { return Op{Kind: FetchAdd, Value: v} }
func ends(v uint64) (uint64, bool)  { return v, true }
func run(steps ...step) (l *Log)    { return replay(steps) }
func atEnd(v uint64) func(int) (uint64, bool) {
	return func(int) (uint64, bool) { return ends(v) }
}

func replay(steps []step) *Log {
	l := &Log{}
	l.Add("w", 0)
	var ids []ID
	for i, s := range steps {
		if s.call != nil {
			ids = append(ids, l.Invoke(0, i, *s.call))
			continue
		}
		l.Return(ids[s.answer], s.value)
	}
	return l
}

func TestHistories(t *testing.T) {
	for _, c := range []struct {
		name string
		log  *Log
		end  uint64
		ok   bool
	}{
		{"nothing", run(), 0, true},
		{"nothing was done and the word changed", run(), 1, false},
		{"a lock is taken once", run(call(cas(0, 7)), call(cas(0, 8)), answered(1, 0), answered(0, 8)), 8, true},
		{"a lock is granted twice", run(call(cas(0, 7)), call(cas(0, 8)), answered(1, 0), answered(0, 0)), 8, false},
		{"a release without answer may have happened", run(call(cas(0, 7)), answered(0, 0), call(write(0)), call(cas(0, 8)), answered(2, 0)), 8, true},
		{"or not", run(call(cas(0, 7)), answered(0, 0), call(write(0)), call(cas(0, 8)), answered(2, 7)), 7, true},
		{"or at the end", run(call(cas(0, 7)), answered(0, 0), call(write(0)), call(cas(0, 8)), answered(2, 7)), 0, true},
		{"but not before it was asked for", run(call(cas(0, 7)), answered(0, 0), call(cas(0, 8)), answered(1, 0), call(write(0))), 8, false},
		{"a stale WRITE comes back", run(call(write(3)), answered(0, 0), call(write(4)), answered(1, 0)), 3, false},
		{"an addition is lost", run(call(add(1)), answered(0, 0), call(add(1)), answered(1, 1)), 1, false},
		{"an addition is done twice", run(call(add(1)), answered(0, 0), call(add(1)), answered(1, 2)), 3, false},
		{"an addition without answer counts once at most", run(call(add(1)), call(add(1)), answered(1, 2)), 3, false},
		{"a CAS without answer that shows only in an addition", run(call(cas(0, 7)), call(add(1)), call(Op{Kind: Read}), answered(2, 8)), 8, true},
		{"a READ goes back in time", run(call(write(1)), answered(0, 0), call(Op{Kind: Read}), answered(1, 0)), 1, false},
		{"a mirrored word", run(call(write(1)), answered(0, 0), call(Op{Kind: Read}), answered(1, 1<<56)), 1, false},
		{"half a WRITE", run(call(Op{Kind: Write, Value: ^uint64(0), Mask: 0xff}), answered(0, 0)), 0xff, true},
		{"a whole one in its place", run(call(Op{Kind: Write, Value: ^uint64(0), Mask: 0xff}), answered(0, 0)), ^uint64(0), false},
	} {
		err := c.log.Check(atEnd(c.end), MostSteps)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		var broken *BrokenError
		if err != nil && !errors.As(err, &broken) {
			t.Errorf("%s: %T", c.name, err)
		}
	}
}

func TestBrokenNamesWhatCannotFollow(t *testing.T) {
	l := run(call(cas(0, 7)), call(cas(0, 8)), answered(1, 0), answered(0, 0))
	err := l.Check(func(int) (uint64, bool) { return 0, false }, MostSteps)
	for _, part := range []string{"word w", ") found 0x0", "1 of 2", "the word is 0x"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// A search with too small a bound says that it is undecided, with or without the order of the
// memory's changes.
func TestSearchIsBounded(t *testing.T) {
	l, end := executed(rand.New(rand.NewPCG(1, 1)), 0)
	var undecided *UndecidedError
	if err := l.Check(atEnd(end), 50); !errors.As(err, &undecided) || undecided.Steps != 50 {
		t.Errorf("in 50 steps: %v", err)
	}
}

// A word whose search is undecided does not hide another one that is broken.
func TestUndecidedWordHidesNoBrokenOne(t *testing.T) {
	l, end := executed(rand.New(rand.NewPCG(1, 1)), 0)
	w := l.Add("broken", 0)
	l.Return(l.Invoke(w, 0, write(1)), 0)
	l.Return(l.Invoke(w, 0, Op{Kind: Read}), 0) // goes back in time
	final := func(word int) (uint64, bool) {
		if word == w {
			return 1, true
		}
		return atEnd(end)(word)
	}
	var broken *BrokenError
	if err := l.Check(final, 50); !errors.As(err, &broken) {
		t.Errorf("%v", err)
	}
}

// Many operations without an answer do not make the search long: releases and takeovers of a lock
// that many clients have asked for and whose answers were lost.
func TestManyWithoutAnAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	l := &Log{}
	l.Add("lock", 0)
	var word uint64
	for k := range 400 {
		me := uint64(k + 1)
		take := cas(0, me)
		id := l.Invoke(0, k, take)
		before := word
		word = take.Apply(word)
		l.Return(id, before)
		if word != me {
			t.Fatal("the lock is taken")
		}
		release := cas(me, 0)
		id = l.Invoke(0, k, release)
		word = release.Apply(word)
		if r.IntN(8) > 0 {
			l.Return(id, me)
		}
		if r.IntN(8) == 0 { // asks for the lock of a client that has it no more, and gets no answer
			l.Invoke(0, 1000+k, cas(me, 0))
		}
	}
	if l.Pending < 60 {
		t.Fatalf("only %d operations without an answer", l.Pending)
	}
	if err := l.Check(atEnd(0), 1<<16); err != nil {
		t.Error(err)
	}
	var broken *BrokenError
	if err := l.Check(atEnd(5), 1<<22); !errors.As(err, &broken) {
		t.Errorf("a wrong end: %v", err)
	}
}

// The end loses no order and adds none: small histories have the same verdict by trying all orders.
func TestSmallHistoriesByAllOrders(t *testing.T) {
	accepted := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		l := &Log{}
		l.Add("w", 0)
		var ids []ID
		var ops []Op
		returned := make(map[int]uint64)
		var order [][2]int // call and return of each operation, by place in the history
		place := 0
		for len(ids) < 6 || r.IntN(3) > 0 {
			place++
			if open := len(ids) - len(returned); len(ids) < 6 && (open == 0 || r.IntN(2) == 0) {
				op := []Op{cas(uint64(r.IntN(3)), uint64(r.IntN(3))), write(uint64(r.IntN(3))), add(1), {Kind: Read}}[r.IntN(4)]
				ids, ops, order = append(ids, l.Invoke(0, len(ids), op)), append(ops, op), append(order, [2]int{place, never})
				continue
			}
			i := r.IntN(len(ids))
			if _, ok := returned[i]; ok {
				if len(returned) == len(ids) {
					break
				}
				continue
			}
			returned[i] = uint64(r.IntN(3))
			l.Return(ids[i], returned[i])
			order[i][1] = place
		}
		final := uint64(r.IntN(3))
		want := possible(ops, order, returned, final, 0, 0)
		if err := l.Check(atEnd(final), MostSteps); (err == nil) != want {
			t.Fatalf("seed %d: %v; by all orders %v", seed, err, want)
		}
		if want {
			accepted++
		}
	}
	if accepted < 100 || accepted > 2900 {
		t.Errorf("%d of 3000 histories were accepted", accepted)
	}
}

// possible tries all orders of the operations that are not done, from a value of the word. Operations
// without an answer may be left out.
func possible(ops []Op, order [][2]int, returned map[int]uint64, final, value uint64, done int) bool {
	left := false
	for i := range ops {
		if _, ok := returned[i]; ok && done&(1<<i) == 0 {
			left = true
		}
	}
	if !left && value == final {
		return true
	}
next:
	for i, op := range ops {
		if done&(1<<i) != 0 {
			continue
		}
		for j := range ops {
			if done&(1<<j) == 0 && order[j][1] < order[i][0] {
				continue next
			}
		}
		if v, ok := returned[i]; ok && op.Kind != Write && v != value {
			continue
		}
		if possible(ops, order, returned, final, op.Apply(value), done|1<<i) {
			return true
		}
	}
	return false
}

// Every history of operations that were executed in some order is accepted. With one wrong answer
// it is not.
func TestRandomHistories(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		l, end := executed(r, 0)
		if err := l.Check(atEnd(end), MostSteps); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if l.Pending == 0 || l.Ops < 100 {
			t.Errorf("seed %d: %d operations, %d pending", seed, l.Ops, l.Pending)
		}
		r = rand.New(rand.NewPCG(seed, 1))
		l, end = executed(r, 1<<40)
		if err := l.Check(atEnd(end), MostSteps); err == nil {
			t.Errorf("seed %d: a wrong answer was accepted", seed)
		}
	}
}

// executed makes a history of 12 clients. lie is added to the answer of one operation.
func executed(r *rand.Rand, lie uint64) (*Log, uint64) {
	l := &Log{}
	l.Add("w", 0)
	type client struct {
		op     Op
		id     ID
		asked  bool
		done   bool
		answer uint64
	}
	var cs [12]client
	var word uint64
	for i := 0; i < 600; i++ {
		k := r.IntN(len(cs))
		c := &cs[k]
		switch {
		case !c.asked:
			c.op = []Op{cas(word, r.Uint64()), cas(0, r.Uint64()), add(1), write(r.Uint64()), {Kind: Read}}[r.IntN(5)]
			*c = client{op: c.op, id: l.Invoke(0, k, c.op), asked: true}
		case !c.done:
			c.answer, c.done = word, true
			word = c.op.Apply(word)
		case k == 0 && i > 300: // the client has died
		default:
			if i > 400 && c.op.Kind != Write {
				c.answer += lie
				lie = 0
			}
			l.Return(c.id, c.answer)
			c.asked = false
		}
	}
	return l, word
}

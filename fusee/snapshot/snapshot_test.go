package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

func TestTable(t *testing.T) { golden.Check(t, "testdata/table.golden", Table()) }

// trial explores all orders in which the operations of writers reach the replicas of one word. Each
// writer reads the primary first, at any time.
type trial struct {
	writers, replicas int
	rules             rules
	// value returns the new value of a writer; nil: the values of all writers differ.
	value func(writer int) uint64
	// hasty losers do not wait for the primary; careless winners do not fix the backups.
	hasty, careless bool
	seen            map[system]bool
}

// system is one state of the replicas and all writers.
type system struct {
	primary uint64
	backups [3]uint64
	w       [3]client
}

// client is a writer with its operations in flight.
type client struct {
	begun bool
	// won is whether its swap of the primary has succeeded: the value order has it.
	won    bool
	writer Writer
	action Action
	swaps  [3]Swap
	found  [3]uint64
	n      uint8
	ended  uint8 // one bit for each swap: it has been executed
}

func (tr *trial) newValue(i int) uint64 {
	if tr.value != nil {
		return tr.value(i)
	}
	return uint64(i + 1)
}

// run explores all orders, and returns the first violation.
func (tr *trial) run() error {
	tr.seen = map[system]bool{}
	return tr.explore(&system{})
}

func (tr *trial) explore(s *system) error {
	if tr.seen[*s] {
		return nil
	}
	tr.seen[*s] = true
	moved := false
	for i := range tr.writers {
		for op := range 3 {
			next := *s
			ok, err := tr.step(&next, i, op)
			if err != nil {
				return err
			}
			if ok && next != *s {
				moved = true
				if err := tr.explore(&next); err != nil {
					return err
				}
			}
		}
	}
	if !moved {
		return tr.end(s)
	}
	return nil
}

// step lets operation op of writer i reach its replica. It returns false if there is no such
// operation.
func (tr *trial) step(s *system, i, op int) (bool, error) {
	c := &s.w[i]
	if !c.begun {
		c.begun, c.writer = true, New(s.primary, tr.newValue(i), tr.replicas-1)
		tr.do(s, c, c.writer.Begin())
		return op == 0, nil
	}
	switch c.action {
	case SwapBackups:
		if op >= int(c.n) || c.ended&(1<<op) != 0 {
			return false, nil
		}
		word := &s.backups[c.swaps[op].Backup]
		if c.found[op] = *word; *word == c.swaps[op].Compare {
			*word = c.writer.Value()
		}
		if c.ended |= 1 << op; c.ended == 1<<c.n-1 {
			tr.do(s, c, c.writer.backups(c.found[:c.n], tr.rules))
		}
	case ReadPrimary:
		if op != 0 {
			return false, nil
		}
		tr.do(s, c, c.writer.primary(s.primary, tr.rules))
	case SwapPrimary:
		if op != 0 {
			return false, nil
		}
		found := s.primary
		if found == c.writer.Old() {
			s.primary, c.won = c.writer.Value(), true
		}
		tr.do(s, c, c.writer.primary(found, tr.rules))
	default:
		return false, nil
	}
	return true, tr.after(s, c)
}

// do records the next action of a writer. The log is not shared among writers, so it is written at
// once.
func (tr *trial) do(s *system, c *client, a Action) {
	if a == SwapBackups && tr.careless && c.writer.State() == Fixing {
		c.writer.state = Logging
		a = Log
	}
	if a == Log {
		a = c.writer.Logged()
	}
	if tr.hasty && c.writer.State() == Waiting {
		c.writer.state, a = Lost, None
	}
	c.action, c.n, c.ended = a, 0, 0
	c.swaps, c.found = [3]Swap{}, [3]uint64{}
	if a == SwapBackups {
		c.n = uint8(copy(c.swaps[:], c.writer.Swaps(nil)))
	}
}

// after checks a writer that may have ended.
func (tr *trial) after(s *system, c *client) error {
	switch c.writer.State() {
	case Lost:
		if s.primary == c.writer.Old() {
			return fmt.Errorf("a loser has ended before the primary has changed: %s", tr.text(s))
		}
	case Won:
		if !c.won {
			return fmt.Errorf("a winner has not changed the primary: %s", tr.text(s))
		}
	case Failed:
		return fmt.Errorf("a writer has failed: %s", tr.text(s))
	default:
	}
	return nil
}

// end checks a final system: all writers have ended. Of the writers that have read the same value,
// exactly one has won. The values of the winners form one order, from the first value to the value
// of all replicas.
func (tr *trial) end(s *system) error {
	after := map[uint64]uint64{}
	read := map[uint64]bool{}
	for i := range tr.writers {
		c := &s.w[i]
		read[c.writer.Old()] = true
		switch was, twice := after[c.writer.Old()]; {
		case !c.writer.State().Ended():
			return fmt.Errorf("writer %d waits for ever: %s", i, tr.text(s))
		case c.won && twice:
			return fmt.Errorf("%d and %d have both replaced %d: %s", was, c.writer.Value(), c.writer.Old(), tr.text(s))
		case c.won:
			after[c.writer.Old()] = c.writer.Value()
		}
	}
	value := uint64(0)
	for n := 0; read[value]; n++ {
		next, ok := after[value]
		if !ok || n > tr.writers {
			return fmt.Errorf("no writer has replaced %d: %s", value, tr.text(s))
		}
		value = next
	}
	for i := range tr.replicas - 1 {
		if s.backups[i] != value || s.primary != value {
			return fmt.Errorf("the replicas differ: %s", tr.text(s))
		}
	}
	return nil
}

func (tr *trial) text(s *system) string {
	text := fmt.Sprintf("primary %d, backups %v", s.primary, s.backups[:tr.replicas-1])
	for i := range tr.writers {
		w := &s.w[i].writer
		text += fmt.Sprintf("; writer %d from %d to %d: %v, has seen %v", i, w.Old(), w.Value(), w.State(), w.has[:w.n])
	}
	return text
}

// Exactly one of the writers that have read a value replaces it, whatever the order in which their
// operations reach the replicas is.
func TestAllInterleavings(t *testing.T) {
	for replicas := 1; replicas <= 4; replicas++ {
		for writers := 1; writers <= 3; writers++ {
			if testing.Short() && replicas == 4 && writers == 3 {
				continue
			}
			tr := trial{writers: writers, replicas: replicas, rules: theRules}
			if err := tr.run(); err != nil {
				t.Errorf("%d writers, %d replicas: %v", writers, replicas, err)
			}
			t.Logf("%d writers, %d replicas: %d states", writers, replicas, len(tr.seen))
		}
	}
}

// Rules that are wrong are noticed by some interleaving of three writers.
func TestWrongRulesAreNoticed(t *testing.T) {
	half := func(list []uint64, mine uint64) verdict {
		if v := byBackups(list, mine); v != open {
			return v
		}
		if 2*count(list, mine) >= len(list) {
			return wins2
		}
		return open
	}
	for name, tr := range map[string]*trial{
		"half is enough for Rule 2": {replicas: 3, rules: rules{half, byPrimary}},
		"Rule 1 alone": {replicas: 3, rules: rules{func(list []uint64, mine uint64) verdict {
			if v := byBackups(list, mine); v == wins1 {
				return v
			}
			return loses
		}, byPrimary}},
		"Rule 3 without the primary": {replicas: 3, rules: rules{byBackups, func(list []uint64, mine, old, _ uint64) verdict {
			return byPrimary(list, mine, old, old)
		}}},
		"Rule 3 in another order": {replicas: 3, rules: rules{byBackups, func(list []uint64, mine, old, primary uint64) verdict {
			if v := byPrimary(list, mine, old, primary); v == gone || mine != 2 {
				return v
			}
			return wins3
		}}},
		"Rule 3 for the first that asks": {replicas: 4, rules: rules{byBackups, func(_ []uint64, _, old, primary uint64) verdict {
			if primary != old {
				return gone
			}
			return wins3
		}}},
		"losers that do not wait":             {replicas: 2, rules: theRules, hasty: true},
		"winners that leave other backups":    {replicas: 3, rules: theRules, careless: true},
		"two writers with the same new value": {replicas: 2, rules: theRules, value: func(i int) uint64 { return uint64(max(1, i)) }},
	} {
		if tr.writers = 3; tr.run() == nil {
			t.Errorf("%s: not noticed in %d states", name, len(tr.seen))
		}
	}
}

// What the rules decide for given lists of values.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		list []uint64
		want verdict
	}{
		{[]uint64{5}, wins1},
		{[]uint64{7}, loses},
		{[]uint64{5, 5, 5}, wins1},
		{[]uint64{7, 7, 7}, loses},
		{[]uint64{5, 7, 5}, wins2},
		{[]uint64{7, 5, 7}, loses},
		{[]uint64{5, 7}, open},
		{[]uint64{8, 7}, loses},
		{[]uint64{5, 7, 8}, open},
		{[]uint64{6, 7, 8}, loses},
		{[]uint64{5, 5, 7, 7}, open},
	} {
		if got := byBackups(c.list, 5); got != c.want {
			t.Errorf("%v: %d, want %d", c.list, got, c.want)
		}
	}
	for _, c := range []struct {
		list    []uint64
		primary uint64
		want    verdict
	}{
		{[]uint64{5, 7}, 1, wins3}, {[]uint64{5, 4}, 1, loses}, {[]uint64{5, 1 << 63}, 1, wins3}, {[]uint64{5, 7}, 7, gone},
	} {
		if got := byPrimary(c.list, 5, 1, c.primary); got != c.want {
			t.Errorf("%v, primary %d: %d, want %d", c.list, c.primary, got, c.want)
		}
	}
}

// A winner by Rule 2 or 3 swaps the backups that have other values, from these. A swap that was
// repeated finds the new value, which is as good; any other value ends the writer.
func TestFixing(t *testing.T) {
	fixing := func() Writer {
		w := New(1, 5, 3)
		w.Begin()
		if a := w.Backups([]uint64{1, 9, 1}); a != SwapBackups || w.State() != Fixing {
			t.Fatalf("%v in %v", a, w.State())
		}
		if got := w.Swaps(nil); !slices.Equal(got, []Swap{{1, 9}}) {
			t.Fatalf("swaps %v", got)
		}
		return w
	}
	for found, want := range map[uint64]State{9: Logging, 5: Logging, 8: Failed} {
		w := fixing()
		if w.Backups([]uint64{found}); w.State() != want {
			t.Errorf("found %d: %v, want %v", found, w.State(), want)
		}
	}
	w := fixing()
	if w.Logged(); w.State() != Fixing {
		t.Errorf("an event that does not belong to the state leads to %v", w.State())
	}
	if a := w.Down(); a != None || w.State() != Failed || !w.State().Ended() {
		t.Errorf("%v in %v", a, w.State())
	}
	short := New(1, 5, 3)
	short.Begin()
	if short.Backups(nil); short.State() != Failed {
		t.Errorf("an answer that is too short leads to %v", short.State())
	}
}

// Without backups the swap of the primary decides. With backups, a winner that finds an unexpected
// value in the primary has failed.
func TestPrimary(t *testing.T) {
	for _, c := range []struct {
		backups int
		found   uint64
		want    State
	}{{0, 1, Won}, {0, 5, Won}, {0, 9, Lost}, {1, 1, Won}, {1, 9, Failed}} {
		w := New(1, 5, c.backups)
		if w.Begin() == SwapBackups {
			w.Backups([]uint64{1})
			w.Logged()
		}
		if w.Primary(c.found); w.State() != c.want {
			t.Errorf("%+v: %v", c, w.State())
		}
	}
}

func BenchmarkRule1(b *testing.B) {
	b.ReportAllocs()
	var swaps [MaxBackups]Swap
	for b.Loop() {
		w := New(1, 5, 2)
		w.Begin()
		found := [2]uint64{1, 1}
		_ = w.Swaps(swaps[:0])
		w.Backups(found[:])
		w.Logged()
		if w.Primary(1); w.State() != Won {
			b.Fatal(w.State())
		}
	}
}

// The winner that a loser names is the one of the rules.
func TestWinner(t *testing.T) {
	for _, c := range []struct {
		found []uint64
		want  uint64
	}{{[]uint64{7}, 7}, {[]uint64{7, 9, 7}, 7}, {[]uint64{9, 8, 7}, 7}, {[]uint64{8, 8, 7, 7}, 7}} {
		w := New(1, 5, len(c.found))
		w.Begin()
		if w.Backups(c.found); w.State() != Waiting || w.Winner() != c.want {
			t.Errorf("%v: %d in %v, want %d", c.found, w.Winner(), w.State(), c.want)
		}
	}
	if alone := New(1, 5, 0); alone.Winner() != 0 {
		t.Errorf("without backups: %d", alone.Winner())
	}
}

// Two writers replace 0 by one value, as the clients do that work on a split, and a third one replaces what
// it reads: in all orders the replicas are alike in the end, if there are at most 3. With 4 they are not.
func TestWritersOfOneValue(t *testing.T) {
	for replicas := 2; replicas <= 4; replicas++ {
		tr := trial{writers: 3, replicas: replicas, rules: theRules, value: func(i int) uint64 { return uint64(max(1, i)) }}
		seen := map[system]bool{}
		var bad string
		var explore func(s *system)
		explore = func(s *system) {
			if seen[*s] || bad != "" {
				return
			}
			seen[*s] = true
			moved := false
			for i := range 3 {
				if i < 2 && !s.w[i].begun && s.primary != 0 {
					continue
				}
				for op := range 3 {
					next := *s
					ok, _ := tr.step(&next, i, op)
					if ok && next != *s {
						moved = true
						explore(&next)
					}
				}
			}
			if !moved && bad == "" {
				for i := range replicas - 1 {
					if s.backups[i] != s.primary {
						bad = "replicas differ at the end: " + tr.text(s)
					}
				}
			}
		}
		explore(&system{})
		if (bad != "") != (replicas == 4) {
			t.Errorf("%d replicas, %d states: %q", replicas, len(seen), bad)
		}
	}
}

// A writer has left its value if it may be in the primary, or if a backup is known to have it. One
// that has not begun, or has lost, has left none.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		state State
		has   []uint64
		want  bool
	}{
		{Idle, []uint64{5}, false},
		{Lost, []uint64{5}, false},
		{Looking, []uint64{4, 6}, false},
		{Looking, []uint64{4, 5}, true},
		{Waiting, []uint64{4}, false},
		{Waiting, []uint64{5, 4}, true},
		{Committing, nil, true},
	} {
		w := Writer{state: c.state, new: 5, n: uint8(len(c.has))}
		copy(w.has[:], c.has)
		if got := w.Left(); got != c.want {
			t.Errorf("%v, the backups have %v: %v", c.state, c.has, got)
		}
	}
}

package lock

import "testing"

var k = Key{1, 2}

func place(t *testing.T, tk *Ticket, ahead int, h Held) {
	t.Helper()
	if a, got := tk.Place(); a != ahead || got != h {
		t.Errorf("%d ahead, %+v; want %d, %+v", a, got, ahead, h)
	}
}

// enter joins a queue, and counts how often it is woken.
func enter(table *Table, k Key) (*Ticket, *int) {
	n := new(int)
	return table.Enter(k, func() { *n++ }), n
}

func TestWhoComesToTheFrontIsWokenOnce(t *testing.T) {
	table := New(8)
	a, wokenA := enter(table, k)
	b, wokenB := enter(table, k)
	c, wokenC := enter(table, k)
	d, wokenD := enter(table, k)
	expect := func(when string, want ...int) {
		t.Helper()
		for i, n := range []*int{wokenA, wokenB, wokenC, wokenD} {
			if *n != want[i] {
				t.Errorf("%s client %d was woken %d times, want %d", when, i, *n, want[i])
			}
		}
	}
	expect("on arrival", 0, 0, 0, 0)
	b.Leave(Held{})
	expect("when one gave up in the middle", 0, 0, 0, 0)
	a.Pass(Held{Tag: 5})
	expect("after a hand-over", 0, 0, 1, 0)
	c.Leave(Held{})
	expect("after a release", 0, 0, 1, 1)
	d.Leave(Held{})
	expect("at the end", 0, 0, 1, 1)
}

// Who gives up just when the lock comes must not lose what the last holder left: the word carries the node's tag.
func TestNobodyGivesUpALockThatHasCome(t *testing.T) {
	table := New(8)
	a, b, c := table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {})
	if !c.GiveUp() {
		t.Error("others are before it")
	}
	a.Pass(Held{Tag: 5})
	if b.GiveUp() {
		t.Error("it has the lock")
	}
	place(t, b, 0, Held{Tag: 5})
	b.Leave(Held{})
	if len(table.queues) != 0 {
		t.Error("nobody is left")
	}
}

func TestClientsGetTheLockInTheOrderOfArrival(t *testing.T) {
	table := New(8)
	a, b, c := table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {})
	place(t, a, 0, Held{})
	place(t, c, 2, Held{})
	b.Leave(Held{Tag: 7}) // it gave up: what it says of a lock that it never had is nothing
	place(t, c, 1, Held{})
	if !a.Pass(Held{Tag: 5}) {
		t.Error("somebody waits")
	}
	place(t, c, 0, Held{Tag: 5})
	if c.Pass(Held{Tag: 5}) {
		t.Error("nobody waits")
	}
	c.Leave(Held{})
	if len(table.queues) != 0 {
		t.Error("a lock that nobody wants takes memory")
	}
}

func TestHandOverIsBounded(t *testing.T) {
	table := New(3)
	now := table.Enter(k, func() {})
	n := 0
	for ; now.MayPass() || n == 0; n++ {
		next := table.Enter(k, func() {})
		if n == 0 && !now.MayPass() {
			t.Fatal("the first may pass it on")
		}
		now.Pass(Held{Tag: 1})
		now = next
		table.Enter(Key{9, 9}, func() {})
		if n > 9 {
			break
		}
		table.Enter(k, func() {}).Leave(Held{}) // somebody who did not wait
		next = table.Enter(k, func() {})
		defer next.Leave(Held{})
		if !now.MayPass() {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d hand-overs before others had their turn, want 3", n+1)
	}
	now.Leave(Held{})
}

func TestDoubtsStay(t *testing.T) {
	table := New(8)
	a := table.Enter(k, func() {})
	a.Leave(Held{Tag: 3, Doubt: 4})
	if d := table.Doubts(); len(d) != 1 || d[0] != k {
		t.Error(d)
	}
	b := table.Enter(k, func() {})
	place(t, b, 0, Held{Tag: 3, Doubt: 4})
	if len(table.Doubts()) != 0 {
		t.Error("somebody cares for it")
	}
	b.Leave(Held{})
	if len(table.Doubts()) != 0 {
		t.Error("settled")
	}
}

// A holder that fails keeps the word for its node: that others of the node have their turn is no reason to begin counting anew.
func TestHandOverIsBoundedWhenClientsFail(t *testing.T) {
	table := New(2)
	a, b, c, d := table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {})
	a.Pass(Held{Tag: 5})
	b.Pass(Held{Tag: 5})
	c.Leave(Held{Tag: 5, Doubt: 6})
	e := table.Enter(k, func() {})
	if d.MayPass() {
		t.Error("the word was handed over twice, and not given back since")
	}
	d.Leave(Held{})
	table.Enter(k, func() {})
	if !e.MayPass() {
		t.Error("the word was given back")
	}
}

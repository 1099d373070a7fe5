package lock

import "testing"

var k = Key{1, 2}

func place(t *testing.T, tk *Ticket, ahead int, h Held) {
	t.Helper()
	if a, got := tk.Place(); a != ahead || got != h {
		t.Errorf("%d ahead, %+v; want %d, %+v", a, got, ahead, h)
	}
}

// enter joins a queue, and counts the calls of wake.
func enter(table *Table, k Key) (*Ticket, *int) {
	n := new(int)
	return table.Enter(k, func() { *n++ }), n
}

func TestClientAtTheFrontIsWokenOnce(t *testing.T) {
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

// A client that gives up at the moment when it gets the lock must not lose the state that the last
// holder has left: the word has the node's tag.
func TestGiveUpFailsAtTheFront(t *testing.T) {
	table := New(8)
	a, b, c := table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {})
	if !c.GiveUp() {
		t.Error("GiveUp failed with other clients ahead")
	}
	a.Pass(Held{Tag: 5})
	if b.GiveUp() {
		t.Error("GiveUp succeeded at the front")
	}
	place(t, b, 0, Held{Tag: 5})
	b.Leave(Held{})
	if len(table.queues) != 0 {
		t.Error("an empty queue is kept")
	}
}

func TestClientsGetTheLockInTheOrderOfArrival(t *testing.T) {
	table := New(8)
	a, b, c := table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {})
	place(t, a, 0, Held{})
	place(t, c, 2, Held{})
	// the client gave up, so the state that it passes has no effect: it never had the lock
	b.Leave(Held{Tag: 7})
	place(t, c, 1, Held{})
	if !a.Pass(Held{Tag: 5}) {
		t.Error("Pass failed with a client waiting")
	}
	place(t, c, 0, Held{Tag: 5})
	if c.Pass(Held{Tag: 5}) {
		t.Error("Pass succeeded with no client waiting")
	}
	c.Leave(Held{})
	if len(table.queues) != 0 {
		t.Error("the queue of an unused lock is kept")
	}
}

func TestHandOverIsBounded(t *testing.T) {
	table := New(3)
	now := table.Enter(k, func() {})
	n := 0
	for ; now.MayPass() || n == 0; n++ {
		next := table.Enter(k, func() {})
		if n == 0 && !now.MayPass() {
			t.Fatal("the first holder may not pass the lock on")
		}
		now.Pass(Held{Tag: 1})
		now = next
		table.Enter(Key{9, 9}, func() {})
		if n > 9 {
			break
		}
		table.Enter(k, func() {}).Leave(Held{}) // a client that did not wait
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
		t.Error("a lock with a queued client is listed")
	}
	b.Leave(Held{})
	if len(table.Doubts()) != 0 {
		t.Error("a released lock is listed")
	}
}

// A holder that fails keeps the word for its node: the count of hand-overs in a row goes on, even
// though the other clients of the node have had their turn.
func TestHandOverIsBoundedWhenClientsFail(t *testing.T) {
	table := New(2)
	a, b, c, d := table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {}), table.Enter(k, func() {})
	a.Pass(Held{Tag: 5})
	b.Pass(Held{Tag: 5})
	c.Leave(Held{Tag: 5, Doubt: 6})
	e := table.Enter(k, func() {})
	if d.MayPass() {
		t.Error("the word may be handed over a third time without a release")
	}
	d.Leave(Held{})
	table.Enter(k, func() {})
	if !e.MayPass() {
		t.Error("the word may not be handed over after a release")
	}
}

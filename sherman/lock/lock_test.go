package lock

import "testing"

var k = Key{1, 2}

func place(t *testing.T, tk *Ticket, ahead int, h Held) {
	t.Helper()
	if a, got := tk.Place(); a != ahead || got != h {
		t.Errorf("%d ahead, %+v; want %d, %+v", a, got, ahead, h)
	}
}

func TestClientsGetTheLockInTheOrderOfArrival(t *testing.T) {
	table := New(8)
	a, b, c := table.Enter(k), table.Enter(k), table.Enter(k)
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
	now := table.Enter(k)
	n := 0
	for ; now.MayPass() || n == 0; n++ {
		next := table.Enter(k)
		if n == 0 && !now.MayPass() {
			t.Fatal("the first may pass it on")
		}
		now.Pass(Held{Tag: 1})
		now = next
		table.Enter(Key{9, 9})
		if n > 9 {
			break
		}
		table.Enter(k).Leave(Held{}) // somebody who did not wait
		next = table.Enter(k)
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
	a := table.Enter(k)
	a.Leave(Held{Tag: 3, Doubt: 4})
	if d := table.Doubts(); len(d) != 1 || d[0] != k {
		t.Error(d)
	}
	b := table.Enter(k)
	place(t, b, 0, Held{Tag: 3, Doubt: 4})
	if len(table.Doubts()) != 0 {
		t.Error("somebody cares for it")
	}
	b.Leave(Held{})
	if len(table.Doubts()) != 0 {
		t.Error("settled")
	}
}

package lock

import (
	"slices"
	"testing"
)

// Doubts are listed by server and then by index.
func TestOrderOfDoubts(t *testing.T) {
	table := New(4)
	want := []Key{{0, 1}, {0, 2}, {0, 9}, {1, 0}, {1, 1}, {2, 0}}
	for _, i := range []int{3, 0, 5, 2, 4, 1} {
		tk, _ := enter(table, want[i])
		tk.Leave(Held{Tag: 7})
	}
	if got := table.Doubts(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A client may pass as long as another one waits and the limit is not reached; a release begins the
// count again.
func TestMayPass(t *testing.T) {
	table, k := New(1), Key{1, 2}
	a, _ := enter(table, k)
	if a.MayPass() || a.Pass(Held{Tag: 1}) {
		t.Error("it passes to no client")
	}
	b, woken := enter(table, k)
	if !a.MayPass() || !a.Pass(Held{Tag: 1}) || *woken != 1 {
		t.Error("it does not pass to the client that waits")
	}
	c, _ := enter(table, k)
	if b.MayPass() {
		t.Error("it passes a second time in a row")
	}
	b.Leave(Held{})
	d, _ := enter(table, k)
	if !c.MayPass() {
		t.Error("it does not pass behind a release")
	}
	d.Leave(Held{Tag: 9}) // not at the front: the state is the front's
	place(t, c, 0, Held{})
	if len(table.Doubts()) != 0 {
		t.Errorf("%v", table.Doubts())
	}
	c.Leave(Held{Tag: 3, Doubt: 4})
	c.Leave(Held{})
	if got := table.Doubts(); len(got) != 1 || got[0] != k {
		t.Errorf("%v", got)
	}
}

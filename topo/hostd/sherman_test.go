package hostd

import "testing"

// Who starts another store in the same memory looks at the status of compute hosts for a tree.
func TestStatusTellsOfATree(t *testing.T) {
	_, cn, _ := up(t)
	if status(t, cn).Tree {
		t.Error("a tree that nobody has made")
	}
	var info TreeInfo
	if err := cn.Call(t.Context(), "POST", PathTreeStart, TreeConfig{Servers: []string{"ms0"}, Format: true}, &info); err != nil {
		t.Fatal(err)
	}
	if !info.Made || !status(t, cn).Tree {
		t.Errorf("made %t, known %t", info.Made, status(t, cn).Tree)
	}
	if err := cn.Call(t.Context(), "POST", PathTreeStop, nil, nil); err != nil {
		t.Fatal(err)
	}
	if status(t, cn).Tree {
		t.Error("the host has forgotten it")
	}
}

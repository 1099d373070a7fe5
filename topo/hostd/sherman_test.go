package hostd

import (
	"strings"
	"testing"
)

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

// What a store has left in memory is destroyed by the other one only if it is told to.
func TestStoresSpareEachOther(t *testing.T) {
	_, cn, _ := up(t)
	call := func(refusal, path string, in any) {
		t.Helper()
		err := cn.Call(t.Context(), "POST", path, in, nil)
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s %+v: %v; want %q", path, in, err, refusal)
		}
	}
	servers := []string{"ms0"}
	call("", PathTreeStart, TreeConfig{Servers: servers, Format: true})
	call("", PathTreeStop, nil)
	call("`rdmalab clover start --fresh`", PathStoreStart, StoreConfig{Servers: servers, Keys: 64})
	call("", PathTreeStart, TreeConfig{Servers: servers}) // it is there still
	call("", PathTreeStop, nil)
	call("", PathStoreStart, StoreConfig{Servers: servers, Keys: 64, Fresh: true})
	call("", PathStoreStop, nil)
	call("`rdmalab sherman start --fresh` makes one all the same", PathTreeStart, TreeConfig{Servers: servers, Format: true})
	call("", PathStoreStart, StoreConfig{Servers: servers, Keys: 64}) // it is there still
	call("", PathStoreStop, nil)
	call("", PathTreeStart, TreeConfig{Servers: servers, Fresh: true})
}

package hostd

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clover "github.com/rdmalab/rdmalab/clover/plugin"
	sherman "github.com/rdmalab/rdmalab/sherman/plugin"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	_ "github.com/rdmalab/rdmalab/store/all" // the stores of these tests
)

// knows reports whether the status of a host lists a tree.
func knows(t *testing.T, c *control.Client) bool {
	t.Helper()
	list := status(t, c).Stores
	return len(list) == 1 && list[0].Store == "sherman" && len(list[0].Values) == len(sherman.Store.Columns)
}

// Before another store starts in the same memory, it looks for a tree in the status of compute
// hosts.
func TestStatusTellsOfATree(t *testing.T) {
	_, cn, _ := up(t)
	if knows(t, cn) {
		t.Error("a tree before one was made")
	}
	var info sherman.Info
	if err := cn.Call(t.Context(), "POST", sherman.Store.Path(store.PathStart), store.Finding{Servers: []string{"ms0"}, Format: true}, &info); err != nil {
		t.Fatal(err)
	}
	if !info.Made || !knows(t, cn) {
		t.Errorf("made %t, known %t", info.Made, knows(t, cn))
	}
	if err := cn.Call(t.Context(), "POST", sherman.Store.Path(store.PathStop), nil, nil); err != nil {
		t.Fatal(err)
	}
	if knows(t, cn) {
		t.Error("the host has forgotten it")
	}
}

// A store destroys the contents that another store has left in memory only if its request says so.
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
	call("", sherman.Store.Path(store.PathStart), store.Finding{Servers: servers, Format: true})
	call("", sherman.Store.Path(store.PathStop), nil)
	call("`rdmalab clover start --fresh`", clover.Store.Path(store.PathStart), clover.Config{Servers: servers, Keys: 64})
	call("", sherman.Store.Path(store.PathStart), store.Finding{Servers: servers}) // it is there still
	call("", sherman.Store.Path(store.PathStop), nil)
	call("", clover.Store.Path(store.PathStart), clover.Config{Servers: servers, Keys: 64, Fresh: true})
	call("", clover.Store.Path(store.PathStop), nil)
	call("`rdmalab sherman start --fresh` overwrites it", sherman.Store.Path(store.PathStart), store.Finding{Servers: servers, Format: true})
	call("", clover.Store.Path(store.PathStart), clover.Config{Servers: servers, Keys: 64}) // it is there still
	call("", clover.Store.Path(store.PathStop), nil)
	call("", sherman.Store.Path(store.PathStart), store.Finding{Servers: servers, Fresh: true})
}

// Of starts of a store that come at once, the first makes the store and the others find it: none
// destroys what another has made.
func TestStartsAtOnce(t *testing.T) {
	for _, name := range []string{"fusee", "sherman", "template"} {
		t.Run(name, func(t *testing.T) {
			_, cn, _ := up(t)
			var made atomic.Int32
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					var out struct{ Made bool }
					in := store.Finding{Servers: []string{"ms0"}, Format: true}
					if err := cn.Call(t.Context(), "POST", "/store/"+name+"/"+store.PathStart, in, &out); err != nil {
						t.Error(err)
					} else if out.Made {
						made.Add(1)
					}
				})
			}
			if all.Wait(); made.Load() != 1 {
				t.Errorf("%d of 4 starts have made the store", made.Load())
			}
		})
	}
}

package live

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/top"
)

// A host has a column for each value that its store names. Values without a name, and unknown
// stores, have no columns.
func TestColumnsOfStores(t *testing.T) {
	remove := store.Register(store.Store{
		Name: "tiny", Title: "Tiny", Node: func(store.Host) store.Node { return nil }, Columns: []string{"GETS", "PUTS"},
	})
	defer remove()
	var n top.Node
	addColumns(&n, []store.Status{{Store: "tiny", Values: []uint64{7, 8, 9}}, {Store: "other", Values: []uint64{1}}, {Store: "tiny", Values: []uint64{5}}})
	if want := []top.Counter{{Name: "GETS", Value: 7}, {Name: "PUTS", Value: 8}, {Name: "GETS", Value: 5}}; !slices.Equal(n.Columns, want) {
		t.Errorf("%v, want %v", n.Columns, want)
	}
}

package host

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/store"
)

// The daemon of a host's Pod serves the stores that `kubectl rdmalab` has commands for.
func TestHostsHaveStores(t *testing.T) {
	for _, name := range []string{"clover", "fusee", "kvcs", "nictable", "sherman"} {
		if !slices.Contains(store.Names(nil), name) {
			t.Errorf("there is no store %s: %v", name, store.Names(nil))
		}
	}
}

package serialize_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// What the program declares has sizes, has each name once, and its defaults are the limits of the paper: 4 k connections
// (two rows each), 128 map entries a connection.
func TestSpec(t *testing.T) {
	_, p := ruled(t, rules.Hard)
	spec := p.Spec()
	seen := map[string]int{}
	for _, x := range spec.Tables {
		if x.KeyBits <= 0 || x.ValueBits <= 0 || x.Entries <= 0 || seen[x.Name] != 0 {
			t.Errorf("%+v", x)
		}
		seen[x.Name] = x.Entries
	}
	for _, x := range spec.Registers {
		if x.Width <= 0 || x.Entries <= 0 || seen[x.Name] != 0 {
			t.Errorf("%+v", x)
		}
		seen[x.Name] = x.Entries
	}
	for name, want := range map[string]int{"rows": 8192, "row psn": 8192, "paper map entries": 4096 * 128, "shared ring": 128, "record": 4096} {
		if seen[name] != want {
			t.Errorf("%s has %d entries, want %d", name, seen[name], want)
		}
	}
	t.Logf("%d MiB", spec.Bits()>>23)
}

package swordbox_test

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Each resource that the program declares has a size and a name of its own. The defaults are the
// limits of the paper: 4 k connections (two flows each), 128 map entries a connection.
func TestSpec(t *testing.T) {
	_, p := ruled(t, rules.Hardened)
	spec := p.Spec()
	seen := map[string]int{}
	for _, part := range spec.Parts {
		for _, x := range part.Tables {
			if x.KeyBits <= 0 || x.ValueBits <= 0 || x.Entries <= 0 || seen[x.Name] != 0 {
				t.Errorf("%+v", x)
			}
			seen[x.Name] = x.Entries
		}
		for _, x := range part.Registers {
			if x.Width <= 0 || x.Entries <= 0 || seen[x.Name] != 0 || x.Each > 0 && x.Entries%x.Each != 0 {
				t.Errorf("%+v", x)
			}
			seen[x.Name] = x.Entries
		}
		for _, x := range part.Needs {
			if x.What == "" || !slices.Contains(pipeline.NeedKinds, x.Kind) || x.Kind != pipeline.NeedICRC && x.Count <= 0 ||
				(x.Kind == pipeline.NeedStore) != (x.Bits > 0) {
				t.Errorf("%s: %+v", part.Name, x)
			}
		}
		if part.Mode != "" && !slices.Contains(spec.Modes, part.Mode) || part.Name == "" {
			t.Errorf("part %q of mode %q", part.Name, part.Mode)
		}
	}
	for name, want := range map[string]int{"flows": 8192, "flow psn": 8192, "paper map entries": 512 * 1024, "shared ring": 512 * 128, "record": 4096} {
		if seen[name] != want {
			t.Errorf("%s has %d entries, want %d", name, seen[name], want)
		}
	}
	t.Logf("%d MiB", spec.Bits()>>23)
}

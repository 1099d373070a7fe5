package plugin

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sherman/layout"
)

// A step is refused on a tree with other pages, or with locks elsewhere. The error says what to do.
// Sherman uses every tree, by its name and without one.
func TestStepFitsTree(t *testing.T) {
	for _, c := range []struct {
		step   string
		kind   layout.Kind
		inPage bool
		host   bool
		wrong  bool
	}{
		{"fg+", layout.Checksummed, true, true, false},
		{"fg+", layout.Checksummed, false, true, true},
		{"fg+", layout.Checksummed, false, false, true},
		{"on-chip", layout.Checksummed, false, false, false},
		{"on-chip", layout.Checksummed, false, true, true},
		{"on-chip", layout.Checksummed, true, true, true},
		{"hierarchical", layout.Published, false, false, true},
		{"", layout.Checksummed, false, true, false},
		{"sherman", layout.Checksummed, true, true, false},
	} {
		in := Config{Step: c.step}
		if _, _, err := in.settle(); err != nil {
			t.Fatal(err)
		}
		err := in.fits(layout.Superblock{Shape: layout.Shape{Kind: c.kind}, PageLocks: c.inPage, HostLocks: c.host})
		if c.wrong != (err != nil) || err != nil && !strings.Contains(err.Error(), "`rdmalab sherman start --fresh --step "+c.step+"`") {
			t.Errorf("step %q on %s pages, locks %s: %v", c.step, layouts[c.kind], lockPlace(c.inPage, c.host), err)
		}
	}
	unnamed, named := Config{}, Config{Step: "sherman"}
	for _, c := range []*Config{&unnamed, &named} {
		if _, _, err := c.settle(); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := (&tree{cfg: unnamed}), (&tree{cfg: named}); !a.sameAs(b) {
		t.Errorf("no step is step %q, Sherman %q", unnamed.Step, named.Step)
	}
}

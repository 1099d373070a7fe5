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
		step  string
		kind  layout.Kind
		host  bool
		wrong bool
	}{
		{"fg+", layout.Checksummed, true, false},
		{"fg+", layout.Checksummed, false, true},
		{"fg+", layout.Hardened, true, true},
		{"on-chip", layout.Checksummed, false, false},
		{"on-chip", layout.Checksummed, true, true},
		{"hierarchical", layout.Published, false, true},
		{"", layout.Checksummed, true, false},
		{"sherman", layout.Checksummed, true, false},
	} {
		in := Config{Step: c.step}
		if _, err := in.settle(); err != nil {
			t.Fatal(err)
		}
		err := in.fits(layout.Superblock{Shape: layout.Shape{Kind: c.kind}, HostLocks: c.host})
		if c.wrong != (err != nil) || err != nil && !strings.Contains(err.Error(), "`rdmalab sherman start --fresh --step "+c.step+"`") {
			t.Errorf("step %q on %s pages, locks in host memory %v: %v", c.step, kindName(c.kind), c.host, err)
		}
	}
	unnamed, named := Config{}, Config{Step: "sherman"}
	for _, c := range []*Config{&unnamed, &named} {
		if _, err := c.settle(); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := (&tree{cfg: unnamed}), (&tree{cfg: named}); !a.sameAs(b) {
		t.Errorf("no step is step %q, Sherman %q", unnamed.Step, named.Step)
	}
}

package netcache

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagram of a key is a golden file, so that a review shows a changed edge.
func TestStateDiagram(t *testing.T) {
	var b strings.Builder
	b.WriteString("digraph key {\n")
	for _, e := range edges {
		fmt.Fprintf(&b, "  %v -> %v [label=%q];\n", e.from, e.to, e.on.String()+": "+e.does.String())
	}
	b.WriteString("}\n")
	golden.Check(t, "testdata/key.dot", b.String())
}

// Each state has one edge for each packet. An answer that shows another value, and that to a write, lead to Cold.
// Only Warm answers, and only a probe that was answered leads there.
func TestDiagramIsComplete(t *testing.T) {
	seen := map[[2]uint8]bool{}
	for _, e := range edges {
		k := [2]uint8{uint8(e.from), uint8(e.on)}
		if seen[k] {
			t.Errorf("two edges from %v on %v", e.from, e.on)
		}
		seen[k] = true
		if (e.on == evOther || e.on == evWrite || e.on == evDone || e.on == evLost || e.on == evUnfit || e.on == evOld) != (e.to == Cold) && e.from != Cold {
			t.Errorf("%v -> %v on %v", e.from, e.to, e.on)
		}
		if (e.does == Hold) != (e.on == evGet && (e.from == Asked || e.from == Storing)) {
			t.Errorf("%+v", e)
		}
		if (e.does == Read) != (e.from == Warm && e.on == evGet) || e.to == Warm && e.from != Warm && (e.from != Storing || e.on != evStored) {
			t.Errorf("%+v", e)
		}
	}
	for s := range states {
		for _, on := range []event{evGet, evSame, evOther, evWrite, evDone} {
			if !diagram[s][on].ok {
				t.Errorf("%v has no edge for %v", s, on)
			}
		}
	}
}

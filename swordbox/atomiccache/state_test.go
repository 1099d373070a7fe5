package atomiccache

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagram is a golden file, so that a review shows a changed edge.
func TestStateDiagram(t *testing.T) {
	golden.Check(t, "testdata/word.dot", graphviz())
}

// Every operation has a decision in every state in which it can occur, and no two edges contradict
// each other.
func TestDiagramIsComplete(t *testing.T) {
	for s := range states {
		for on := evAtomic; on <= evForeign; on++ {
			if (on == evHit || on == evMiss) != (s == Known) && (on <= evMiss) {
				continue // the value is known only in state Known
			}
			for i, c := range diagram[s][on] {
				if !c.ok {
					t.Errorf("%v, %v%s: no edge", s, on, guardNames[i+1])
				}
			}
		}
	}
	seen := map[[3]uint8]edge{}
	for _, e := range edges {
		for _, g := range []guard{clear_, occupied} {
			if e.when != always && e.when != g {
				continue
			}
			k := [3]uint8{uint8(e.from), uint8(e.on), uint8(g)}
			if old, ok := seen[k]; ok {
				t.Errorf("%+v and %+v", old, e)
			}
			seen[k] = e
		}
	}
}

// graphviz returns the state diagram in the language of dot, one edge a line.
func graphviz() string {
	var b strings.Builder
	b.WriteString("digraph word {\n")
	for _, e := range edges {
		label := e.on.String() + guardNames[e.when]
		if e.on <= evForeign {
			label += ": " + e.does.String()
		}
		fmt.Fprintf(&b, "  %v -> %v [label=%q];\n", e.from, e.to, label)
	}
	b.WriteString("}\n")
	return b.String()
}

// The names of events and states in the diagrams.

var eventNames = [...]string{
	"atomic", "atomic that changes", "atomic that does not", "WRITE", "partial WRITE", "foreign",
	"answer of the last", "drained", "patience", "forget", "reset",
}

func (e event) String() string { return eventNames[e] }

var guardNames = [...]string{"", ", clear", ", occupied"}

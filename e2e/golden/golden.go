// Package golden compares what a test has made with a file in testdata, so that reviewers see a
// change. The flag -update writes the file. Tables of states and events are printed as diagrams in
// the language of dot.
package golden

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/transitions"
)

var update = flag.Bool("update", false, "write the golden files of this package")

// Check compares got with the file at path, or writes the file.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed; if that is meant, run with -update. It is\n%s", path, got)
	}
}

// Diagram prints transitions in the language of dot, one a line, in their order. It fails the test
// if a state has two transitions for one event, or a transition stays in its state.
func Diagram[S, E ~uint8](t testing.TB, name string, edges []transitions.Edge[S, E]) string {
	t.Helper()
	seen := map[string]bool{}
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", name)
	for _, e := range edges {
		if e.From == e.To {
			t.Errorf("%s: %v stays on %v", name, e.From, e.On)
		}
		fmt.Fprintf(&b, "  %v -> %v [label=%q];\n", e.From, e.To, fmt.Sprint(e.On))
		k := fmt.Sprint(e.From, " on ", e.On)
		if seen[k] {
			t.Errorf("%s: two transitions of %s", name, k)
		}
		seen[k] = true
	}
	b.WriteString("}\n")
	return b.String()
}

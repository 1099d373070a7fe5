package words

import (
	"flag"
	"os"
	"testing"
)

var updateFlag = flag.Bool("update", false, "write testdata/word.dot anew")

// The state diagram is a golden file, so that a changed edge is seen in review.
func TestStateDiagram(t *testing.T) {
	const path = "testdata/word.dot"
	got := Graphviz()
	if *updateFlag {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the state diagram has changed; if that is meant, run with -update\n%s", got)
	}
}

// Every operation has an outcome in every state in which it can happen, and no two edges say different things of it.
func TestDiagramIsComplete(t *testing.T) {
	for s := range states {
		for on := evAtomic; on <= evForeign; on++ {
			if (on == evHit || on == evMiss) != (s == Known) && (on <= evMiss) {
				continue // a value is known in Known and nowhere else
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

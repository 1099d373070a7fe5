package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagrams are a golden file, so that a review shows a changed transition.
func TestStateDiagrams(t *testing.T) {
	golden.Check(t, "testdata/states.dot", diagram(t, "phase", phaseEdges)+diagram(t, "nak", nakEdges)+
		diagram(t, "message", messageEdges)+diagram(t, "record", recordEdges))
}

func diagram[S, E ~uint8](t *testing.T, name string, edges []edge[S, E]) string {
	t.Helper()
	var list []golden.Transition
	for _, e := range edges {
		if e.from == e.to {
			t.Errorf("%s: %v stays on %v", name, e.from, e.on)
		}
		list = append(list, golden.Transition{From: e.from, On: e.on, To: e.to})
	}
	return golden.Diagram(t, name, list)
}

// A closed flow has no transition, and every other state leads to closed.
func TestEveryFlowCanEnd(t *testing.T) {
	for p := range phases {
		for e := range phaseEvents {
			if p == closed && nextPhase[p][e] != closed {
				t.Errorf("a closed flow becomes %v on %v", nextPhase[p][e], e)
			}
		}
		if nextPhase[p][evEnded] != closed {
			t.Errorf("%v does not end", p)
		}
	}
}

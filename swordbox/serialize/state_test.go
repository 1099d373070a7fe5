package serialize

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagrams are a golden file, so that a review shows a changed transition.
func TestStateDiagrams(t *testing.T) {
	golden.Check(t, "testdata/states.dot", golden.Diagram(t, "phase", phaseEdges)+golden.Diagram(t, "nak", nakEdges)+
		golden.Diagram(t, "message", messageEdges)+golden.Diagram(t, "record", recordEdges))
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

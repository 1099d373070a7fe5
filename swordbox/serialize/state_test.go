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

// The names of events and states in the diagrams.

var phaseEventNames = [...]string{"forwarded", "dropped", "synced", "refused", "ended"}

func (e phaseEvent) String() string { return phaseEventNames[e] }

var nakEventNames = [...]string{"in order", "NAK", "no room", "room"}

func (e nakEvent) String() string { return nakEventNames[e] }

var messageEventNames = [...]string{"first", "last", "READ of unknown span", "span known"}

func (e messageEvent) String() string { return messageEventNames[e] }

var recordEventNames = [...]string{"answered", "owe", "paid", "redo", "redo moved", "wait no more", "redone"}

func (e recordEvent) String() string { return recordEventNames[e] }

var recordStateNames = [...]string{"inFlight", "done", "owed", "redoing", "redoingMoved", "redoneLate"}

func (s recordState) String() string { return recordStateNames[s] }

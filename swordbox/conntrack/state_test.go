package conntrack

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagrams are golden files, so that a review shows a changed transition. A closed flow
// has no transition.
func TestStateDiagrams(t *testing.T) {
	for _, e := range stateEdges {
		if e.From == Closed {
			t.Errorf("%v on %v", e.From, e.On)
		}
	}
	golden.Check(t, "testdata/flow.dot", golden.Diagram(t, "flow", stateEdges))
	golden.Check(t, "testdata/sync.dot", golden.Diagram(t, "sync", syncEdges))
}

// The names of events and states in the diagrams.

var eventNames = [...]string{
	"packet", "announced", "paired", "used", "DREQ", "fatal NAK", "ended",
}

func (e event) String() string { return eventNames[e] }

var syncNames = [...]string{"unsynced", "synced", "readOpen"}

func (s sync) String() string { return syncNames[s] }

var syncEventNames = [...]string{"start", "answered", "open READ", "span known"}

func (e syncEvent) String() string { return syncEventNames[e] }

package conntrack

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagrams are golden files, so that a review shows a changed transition. A closed flow
// has no transition.
func TestStateDiagrams(t *testing.T) {
	var flow, sync []golden.Transition
	for _, e := range stateEdges {
		if e.from == Closed {
			t.Errorf("%v on %v", e.from, e.on)
		}
		flow = append(flow, golden.Transition{From: e.from, On: e.on, To: e.to})
	}
	for _, e := range syncEdges {
		sync = append(sync, golden.Transition{From: e.from, On: e.on, To: e.to})
	}
	golden.Check(t, "testdata/flow.dot", golden.Diagram(t, "flow", flow))
	golden.Check(t, "testdata/sync.dot", golden.Diagram(t, "sync", sync))
}

package switchconn

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

// The state diagram is a golden file, so that a review shows a changed transition.
func TestStateDiagram(t *testing.T) {
	golden.Check(t, "testdata/link.dot", golden.Diagram(t, "link", edges))
}

// The names of events and states in the diagrams.

var changeNames = [...]string{"dial", "up", "failed", "end", "removed", "over"}

func (c change) String() string { return changeNames[c] }

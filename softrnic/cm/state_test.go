package cm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"

	"github.com/rdmalab/rdmalab/e2e/golden"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The state diagram is a golden file, so that a review shows a changed edge.
func TestGraphviz(t *testing.T) {
	golden.Check(t, "testdata/states.dot", graphviz())
}

// No state has two edges for one event. Idle can be reached from every other state, and Abort is
// possible in each (IBTA 12.9.7).
func TestEdges(t *testing.T) {
	type key struct {
		s State
		c cause
	}
	seen := map[key]bool{}
	for _, e := range edges {
		if seen[key{e.from, e.on}] {
			t.Errorf("two edges from %v on %v", e.from, e.on)
		}
		seen[key{e.from, e.on}] = true
	}
	for s := REQSent; s <= SIDRRcvd; s++ {
		if _, ok := next(s, onAbort); !ok && s != Idle {
			t.Errorf("%v cannot be aborted", s)
		}
		reached := map[State]bool{s: true}
		for grew := true; grew; {
			grew = false
			for _, e := range edges {
				if reached[e.from] && !reached[e.to] {
					reached[e.to], grew = true, true
				}
			}
		}
		if !reached[Idle] {
			t.Errorf("%v never ends", s)
		}
	}
}

func TestStateError(t *testing.T) {
	err := error(stateError(TimeWait, onAccept))
	if !errors.Is(err, verbs.ErrState) {
		t.Errorf("%v", err)
	}
	if want := "connection: Accept not allowed in this state: the state is TimeWait, legal in [REQRcvd]"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// graphviz prints the state diagram in the language of dot, one edge a line.
func graphviz() string {
	var b strings.Builder
	b.WriteString("digraph cm {\n")
	for _, e := range edges {
		label := e.on.String()
		if e.sends != "" {
			label += " / " + e.sends
		}
		fmt.Fprintf(&b, "  %v -> %v [label=%q];\n", e.from, e.to, label)
	}
	b.WriteString("}\n")
	return b.String()
}

// State returns the state of a connection; Idle if there is none with this number.
func (m *Machine) State(id mad.CommID) State {
	t := &m.table
	if c := t.conns[id]; c != nil {
		return c.state
	}
	return Idle
}

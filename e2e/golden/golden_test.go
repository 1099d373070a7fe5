package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/transitions"
)

// probe is a testing.TB that only notes whether the test has failed.
type probe struct {
	testing.TB
	failed int
}

func (p *probe) Helper()               {}
func (p *probe) Errorf(string, ...any) { p.failed++ }

type state uint8

func (s state) String() string { return [...]string{"a", "b", "c"}[s] }

type event uint8

func (e event) String() string { return [...]string{"go", "stop"}[e] }

// A text that differs from its file, a state with two transitions for one event, and a transition
// that stays in its state fail the test.
func TestDifferencesAreNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.dot")
	once := []transitions.Edge[state, event]{{From: 0, On: 0, To: 1}, {From: 1, On: 1, To: 0}}
	text := Diagram(t, "d", once)
	if want := "digraph d {\n  a -> b [label=\"go\"];\n  b -> a [label=\"stop\"];\n}\n"; text != want {
		t.Errorf("%s", text)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &probe{TB: t}
	Check(p, path, text)
	Diagram(p, "d", once)
	if p.failed > 0 {
		t.Error("equal texts fail")
	}
	Check(p, path, strings.Replace(text, "stop", "end", 1))
	Diagram(p, "d", append(once, transitions.Edge[state, event]{From: 0, On: 0, To: 2}, transitions.Edge[state, event]{From: 2, On: 1, To: 2}))
	if p.failed != 3 {
		t.Errorf("%d of 3 were noticed", p.failed)
	}
}

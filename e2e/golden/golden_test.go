package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// probe is a testing.TB that only notes whether the test has failed.
type probe struct {
	testing.TB
	failed int
}

func (p *probe) Helper()               {}
func (p *probe) Errorf(string, ...any) { p.failed++ }

// A text that differs from its file, and a state with two transitions for one event, fail the test.
func TestDifferencesAreNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.dot")
	once := []Transition{{"a", "go", "b"}, {"b", "stop", "a"}}
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
	Diagram(p, "d", append(once, Transition{"a", "go", "c"}))
	if p.failed != 2 {
		t.Errorf("%d of 2 were noticed", p.failed)
	}
}

package plot

import (
	"strings"
	"testing"
)

// Each step has a box, each arrow a line and a head, and the legend each name of an arrow once. A time
// is written once for the steps that have it.
func TestSteps(t *testing.T) {
	s := Steps{
		Title: "a < b", Columns: []string{"main", "second"}, Notes: []string{"result: 1"},
		Steps: []Step{
			{Time: "0s", Title: "0 READ", Lines: []string{"from & to"}},
			{Time: "7µs", Title: "1 CAS"},
			{Time: "7µs", Column: 1, Title: "0 WRITE", Marked: []string{"bytes <1>"}},
		},
		Arrows: []Arrow{{From: 0, To: 2, Name: "changes", Color: 1}, {From: 1, To: 2, Name: "changes", Color: 1}, {From: 1, To: 0, Name: "too late", Dashed: true}, {From: 2, To: 1}},
	}
	svg := s.SVG()
	n := wellFormed(t, svg)
	if n["rect"] != 1+3 || n["path"] != 2*(4+2) {
		t.Errorf("%d boxes and %d lines", n["rect"]-1, n["path"])
	}
	text := string(svg)
	for what, want := range map[string]int{"a &lt; b": 1, "from &amp; to": 1, "bytes &lt;1&gt;": 1, ">0s<": 1, ">7µs<": 1, ">changes<": 1, ">too late<": 1, ">second<": 1, "result: 1": 1, "<script": 0, "NaN": 0} {
		if got := strings.Count(text, what); got != want {
			t.Errorf("%q: %d times, want %d", what, got, want)
		}
	}
	if string(s.SVG()) != text {
		t.Error("a second picture differs")
	}
	empty := Steps{}
	wellFormed(t, empty.SVG())
}

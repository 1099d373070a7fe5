package clover

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

func nodeAt(n int) layout.Location { return layout.Location{Handle: layout.Handle(n), Version: 1} }

func TestWalk(t *testing.T) {
	failed := errors.New("timed out")
	explained := func(tail, circle, steps int) string {
		var w walk
		for n := range steps {
			if n >= tail && circle > 0 {
				n = tail + (n-tail)%circle
			}
			w.step(nodeAt(n + 1))
		}
		err := w.explain(failed)
		if !errors.Is(err, failed) {
			t.Errorf("%v is not the error", err)
		}
		_, said, _ := strings.Cut(err.Error(), "; the chain is a circle of ")
		said, _, _ = strings.Cut(said, " nodes")
		return said
	}
	for _, c := range []struct {
		tail, circle, steps int
		want                string
	}{{0, 0, 1000, ""}, {0, 1, 10, "1"}, {0, 7, 200, "7"}, {100, 7, 1000, "7"}, {100, 250, 5000, "250"}, {100, 250, 200, ""}} {
		if got := explained(c.tail, c.circle, c.steps); got != c.want {
			t.Errorf("%d nodes, then a circle of %d, %d steps: %q, want %q", c.tail, c.circle, c.steps, got, c.want)
		}
	}
	var w walk
	w.step(nodeAt(1))
	w.step(nodeAt(2))
	w.step(nodeAt(1))
	if err := w.explain(failed); strings.Contains(err.Error(), "circle") {
		t.Errorf("a node that was met twice: %v", err)
	}
	path := walk{}
	for range 10 {
		path.step(nodeAt(1))
		path.asked()
	}
	if err := path.explain(failed); strings.Contains(err.Error(), "circle") {
		t.Errorf("a node that the metadata server names again and again: %v", err)
	}
	if w.explain(nil) != nil {
		t.Error("an error of a search that has succeeded")
	}
}

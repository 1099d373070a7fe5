package scenario

import (
	"fmt"
	"strings"
	"testing"
)

// Each of the 46 holes of swordbox/HOLES.md has a script, or the scenario "holes" prints why there is
// none, and not both.
func TestEveryHoleHasAScriptOrAReason(t *testing.T) {
	t.Parallel()
	const all = 46
	scripts := make(map[int]int)
	for _, h := range holes() {
		scripts[h.number]++
	}
	r := holeScenarios()[0].Run(1, Options{})
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	notes := strings.Join(r.Notes, "\n")
	for n := 1; n <= all; n++ {
		reasons := strings.Count(notes, fmt.Sprintf("hole %d, ", n))
		missing := 0
		for _, l := range r.Notes {
			if strings.HasPrefix(l, fmt.Sprintf("hole %d, ", n)) && strings.Contains(l, ", no script, ") {
				missing++
			}
		}
		if scripts[n]+missing != 1 || reasons != 2*scripts[n]+missing {
			t.Errorf("hole %d: %d scripts, %d reasons why there is none, %d notes", n, scripts[n], missing, reasons)
		}
	}
}

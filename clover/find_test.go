package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// A writer looks at a shortcut's node only if it is of the epoch, is not where the writer goes anyway,
// and is not the one that it has followed last.
func TestShortcutsAWriterLooksAt(t *testing.T) {
	loc := func(n layout.Handle) layout.Location { return layout.Location{Handle: n, Version: 1} }
	const epoch = layout.MaxStamp + 3 // more than a shortcut holds
	for name, c := range map[string]struct {
		shortcut layout.Word
		want     bool
	}{
		"none was read":            {0, false},
		"another node":             {loc(7).Stamped(2), true},
		"of another epoch":         {loc(7).Stamped(1), false},
		"the successor":            {loc(4).Stamped(2), false},
		"the one followed last":    {loc(3).Stamped(2), false},
		"that node in another use": {layout.Location{Handle: 3, Version: 2}.Stamped(2), true},
	} {
		k := known{at: loc(4), passed: loc(3), epoch: epoch}
		if l, ok := k.ahead(c.shortcut); ok != c.want || ok && l.Handle == 0 {
			t.Errorf("%s: %v, %v", name, l, ok)
		}
	}
}

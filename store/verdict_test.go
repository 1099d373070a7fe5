package store

import (
	"strings"
	"testing"
)

// A history whose check was given up is not called wrong, and counts as bad.
func TestVerdictIsPrinted(t *testing.T) {
	for want, v := range map[string]Verdict{
		"\nlinearizable: ":        {Linearizable: true},
		"\nnot linearizable: why": {Why: "why"},
		"\nundecided: why":        {Why: "why", Undecided: true},
	} {
		var out strings.Builder
		if err := v.Write(&out, false); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%+v: %q, %v", v, out.String(), err)
		}
		if p := (&Proof{History: &v}); p.Bad() == v.Linearizable {
			t.Errorf("%+v: bad is %v", v, p.Bad())
		}
	}
}

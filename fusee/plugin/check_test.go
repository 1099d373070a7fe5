package plugin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/store"
)

// A check fails for a defect, and for more unfinished changes than it allows; it says which.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		allowed int
		found   fusee.Report
		want    string
	}{
		{0, fusee.Report{Keys: 3}, ""},
		{0, fusee.Report{Unfinished: 1}, "1 slots have changes"},
		{1, fusee.Report{Unfinished: 1}, ""},
		{-1, fusee.Report{Unfinished: 9}, ""},
		{-1, fusee.Report{Unfinished: 9, Defects: []string{"key 5 has two slots", "more"}}, "key 5 has two slots"},
	} {
		why := CheckRequest{Unfinished: c.allowed}.wrong(&c.found)
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%+v with %d allowed: %q, want %q", c.found, c.allowed, why, c.want)
		}
		v := Checked{Table: &c.found, Proof: store.Proof{Why: why, History: &store.Verdict{Linearizable: true}}}
		if v.Bad() != (c.want != "") {
			t.Errorf("%+v: bad %v", c.found, v.Bad())
		}
		if v.History.Linearizable = false; !v.Bad() {
			t.Error("a history that is not linearizable is no failure")
		}
		var out bytes.Buffer
		if err := v.Write(&out); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q, %v; want %q", out.String(), err, c.want)
		}
	}
}

package cli

import (
	"bytes"
	"strings"
	"testing"
)

// down --all removes the racks only after y or yes; everything else, also no answer, means no.
func TestDownAsks(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " yes": true, "n\n": false, "\n": false, "": false, "yess\n": false, strings.Repeat("y", 1000): false} {
		var out bytes.Buffer
		cmd := downCmd()
		cmd.SetIn(strings.NewReader(answer))
		cmd.SetOut(&out)
		got, err := agreed(cmd, []string{"a", "b"})
		if err != nil || got != want || !strings.Contains(out.String(), "removes 2 racks: a, b\n") || want == strings.Contains(out.String(), "nothing was removed") {
			t.Errorf("%q: %v, %v, %q", answer, got, err, &out)
		}
	}
	if onTerminal(strings.NewReader("")) {
		t.Error("a text is a terminal")
	}
	if _, err := run(t, "down", "--yes"); !isUse(err) {
		t.Errorf("down --yes: %v", err)
	}
}

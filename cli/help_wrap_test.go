package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// A list entry is wrapped below its text, and a long name moves only its own line.
func TestListed(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 30))
	for _, c := range []struct{ name, text, want string }{
		{"a", "one", "  a    one\n"},
		{"longer", "one", "  longer one\n"},
		{"", "one", "       one\n"},
		{"a", long, "  a    " + strings.TrimSpace(strings.Repeat("word ", 22)) + "\n       " + strings.TrimSpace(strings.Repeat("word ", 8)) + "\n"},
	} {
		if got := listed(c.name, 4, c.text); got != c.want {
			t.Errorf("%q, %q: got\n%swant\n%s", c.name, c.text, got, c.want)
		}
	}
}

// Help fits into helpWidth columns. Examples are command lines, which may be longer.
func TestHelpWidth(t *testing.T) {
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for line := range strings.Lines(longHelp(t, c) + "\n" + flagUsages(c.NonInheritedFlags())) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("%s: a line of help has %d columns: %s", c.CommandPath(), n, line)
			}
		}
		for _, s := range c.Commands() {
			check(s)
		}
	}
	check(rootCmd(commands()...))
}

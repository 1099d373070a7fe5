package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store"
)

// A shell executes its input to its end. If it cannot read a line, it says so and does not end as if
// the input had ended.
func TestShellInput(t *testing.T) {
	sh := shell{"> ", [][2]string{{"get KEY", ""}}}
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct{ in, did, want string }{
		{"get 1\nget 2", "get 1;get 2;", ""},
		{"get 1\nexit\nget 2\n", "get 1;", ""},
		{"get " + long[:72<<10] + "\n", "get " + long[:72<<10] + ";", ""}, // the longest value of a store has less
		{"fly\nget 2\n", "get 2;", "exit status 1"},
		{"fly\nexit\nget 2\n", "", "exit status 1"},
		{"get 1\nput 2 " + long + "\nget 3\n", "get 1;", "line 2 is longer"},
	} {
		var cmd cobra.Command
		cmd.SetIn(strings.NewReader(c.in))
		cmd.SetOut(io.Discard)
		did := ""
		err := runShell(&cmd, sh, func(_, _ io.Writer, args ...string) error {
			did += strings.Join(args, " ") + ";"
			return nil
		})
		if did != c.did || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: did %q, %v; want %q, %q", c.in, did, err, c.did, c.want)
		}
	}
	var cmd cobra.Command
	broken := errors.New("broken")
	cmd.SetIn(io.MultiReader(strings.NewReader("get 1\n"), errReader{broken}))
	if err := runShell(&cmd, sh, func(_, _ io.Writer, _ ...string) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a broken input: %v", err)
	}
}

type errReader struct{ error }

func (r errReader) Read([]byte) (int, error) { return 0, r.error }

// The flags of a shell reach the commands that have them, and only these.
func TestShellFlags(t *testing.T) {
	for _, s := range store.All() {
		cmd := storeCmd(s)
		for _, w := range shellWords(s) {
			name := strings.Fields(w[0])[0]
			sub, _, err := cmd.Find([]string{name})
			if name == "help" || name == "exit" {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := sub.ParseFlags(shellArgs(sub, []string{name, "7"}, "cn1", true)[1:]); err != nil {
				t.Errorf("%s shell --from cn1 --verbose: %s: %v", s.Name, name, err)
			}
			if flag := sub.Flags().Lookup("from"); flag != nil && flag.Value.String() != "cn1" {
				t.Errorf("%s %s runs on %v", s.Name, name, flag.Value)
			}
		}
	}
}

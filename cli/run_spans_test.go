package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// A run in virtual time writes the operations of each client that --spans-each asks for, with their
// round trips.
func TestSpansOfARun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spans.json")
	rep := measureInSim(t, "--quiet", "--spans="+file, "--spans-each=3", "--warmup=100us")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(text)
	if err != nil {
		t.Fatal(err)
	}
	operations, names := 0, map[string]bool{}
	list := got.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for i := range list.Len() {
		if s := list.At(i); s.ParentSpanID().IsEmpty() {
			operations++
		} else {
			names[s.Name()] = true
		}
	}
	if operations != 6*3 || !names["trip 1"] || rep.Ops < 18 {
		t.Errorf("%d operations with %v", operations, names)
	}
}

// A receiver that does not answer makes the run fail, and the report is printed all the same.
func TestSpansWithoutReceiver(t *testing.T) {
	f, _, err := runOf(append(slices.Clone(virtually), "--quiet", "--spans=http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := new(cobra.Command)
	cmd.SetContext(t.Context())
	if rep, err := f.measure(cmd); rep == nil || rep.Ops == 0 || err == nil || !strings.Contains(err.Error(), "--spans") {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestSpanFlagsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"--spans-each=5", "use it with --spans"},
		{"--spans=" + dir, "is a directory"},
		{"--spans=" + dir + "/x.json --zipf=9", "Zipf"},
		{"--spans=" + dir + "/no/x.json", "no such file"},
		{"--spans=x.json --spans-each=0", "want 1 to"},
		{"--spans=x.json --spans-each=10000 --clients=64", "in all"},
		{"--spans=x.json --load-only", "--load-only"},
	} {
		if _, _, err := runOf(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}

package rack

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// The end of a daemon that a new NIC replaces is no error; any other end is.
func TestEndOfAReplacedDaemon(t *testing.T) {
	for replaced, want := range map[bool]slog.Level{true: slog.LevelInfo, false: slog.LevelError} {
		var got []slog.Level
		n := containerNode{note: func(level slog.Level, _ string, _ ...any) { got = append(got, level) }}
		n.replaced.Store(replaced)
		n.noteEnd(slog.LevelError, "the daemon was killed")
		if len(got) != 1 || got[0] != want {
			t.Errorf("replaced %v: %v, want %v", replaced, got, want)
		}
	}
}

// Process 1 of a node writes to the log of the node in its format.
func TestNoter(t *testing.T) {
	for description, isJSON := range map[string]bool{`{"name":"x","logJson":true}`: true, `{"name":"x"}`: false} {
		paths := rackfile.Paths{Dir: t.TempDir()}
		must(t, os.WriteFile(paths.Spec(), []byte(description), 0o600))
		var out bytes.Buffer
		note := noterTo(&out, paths, "node", "cn0")
		note(slog.LevelError, "the daemon has ended", "status", 3)
		var x struct {
			Level, Msg, Node string
			Status           int
		}
		switch err := json.Unmarshal(out.Bytes(), &x); {
		case (err == nil) != isJSON:
			t.Errorf("%s: %s", description, &out)
		case isJSON && (x.Level != "ERROR" || x.Node != "cn0" || x.Status != 3 || x.Msg == ""):
			t.Errorf("%+v", x)
		case !isJSON && !strings.Contains(out.String(), `level=ERROR msg="the daemon has ended" node=cn0 status=3`):
			t.Errorf("%s", &out)
		}
	}
}

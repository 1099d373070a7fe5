package guests

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// A panic in a log of JSON is one record with its stack; in text the stack follows line by line.
func TestLogPanic(t *testing.T) {
	for description, isJSON := range map[string]bool{`{"name":"x","logJson":true}`: true, `{"name":"x"}`: false} {
		paths := rackfile.Paths{Dir: t.TempDir()}
		if err := os.WriteFile(paths.Spec(), []byte(description), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		var r Reader
		if err := r.LogPanic(paths, "cn0", &out, "the NIC panicked", 7, "goroutine 1\nmain.main()"); err != nil {
			t.Fatal(err)
		}
		var x struct{ Level, Msg, Panic, Stack, Rack, Host string }
		err := json.Unmarshal(out.Bytes(), &x)
		if isJSON && (err != nil || x.Level != "ERROR" || x.Panic != "7" || x.Rack != "x" || x.Host != "cn0" || x.Stack != "goroutine 1\nmain.main()") {
			t.Errorf("%v: %s", err, &out)
		}
		if !isJSON && !strings.HasSuffix(out.String(), "level=ERROR msg=\"the NIC panicked\" panic=7 host=cn0\ngoroutine 1\nmain.main()\n") {
			t.Errorf("%s", &out)
		}
	}
}

// A daemon's log has the format of the rack's description, and is text if there is none.
func TestLogHandler(t *testing.T) {
	for name, want := range map[string]bool{`{"name":"x","logJson":true}`: true, `{"name":"x"}`: false, `{`: false, "": false} {
		paths := rackfile.Paths{Dir: t.TempDir()}
		if name != "" {
			if err := os.WriteFile(filepath.Join(paths.Dir, "rack.json"), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		slog.New(LogHandler(paths, &out)).Info("port", "n", 3)
		var line struct{ Level, Msg string }
		isJSON := json.Unmarshal(out.Bytes(), &line) == nil
		if isJSON != want || isJSON && (line.Level != "INFO" || line.Msg != "port") || !strings.Contains(out.String(), "port") {
			t.Errorf("%s: %s", name, &out)
		}
	}
}

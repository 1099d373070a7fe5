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

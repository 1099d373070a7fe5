package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/rdmalab/rdmalab/kube/agent"
)

// The agent writes what is wrong at level WARN and what is right again at INFO, in both formats.
func TestLogFormats(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		h, err := logHandler(format, &out)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []string{"the list had no entry", ""} { // the fake generates no names, so each event has its own
			agent.Reporter(fake.NewClientset(), "n0", slog.New(h))(t.Context(), wrong)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []struct{ level, reason string }{{"WARN", agent.ReasonMissing}, {"INFO", agent.ReasonBack}}
		if len(lines) != len(want) {
			t.Fatalf("%s: %s", format, &out)
		}
		for i, w := range want {
			var x struct{ Level, Msg, Reason string }
			if isJSON := json.Unmarshal([]byte(lines[i]), &x) == nil; isJSON != (format == "json") {
				t.Errorf("%s: %s", format, lines[i])
			}
			if format == "json" && (x.Level != w.level || x.Reason != w.reason || x.Msg == "") {
				t.Errorf("%s: want %+v", lines[i], w)
			}
			if format == "text" && !(strings.Contains(lines[i], "level="+w.level) && strings.Contains(lines[i], "reason="+w.reason)) {
				t.Errorf("%s: want %+v", lines[i], w)
			}
		}
	}
	if _, err := logHandler("xml", nil); err == nil || !strings.Contains(err.Error(), "want text or json") {
		t.Errorf("xml: %v", err)
	}
}

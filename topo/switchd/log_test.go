package switchd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
)

// formats are the handlers of a log in the formats of `rdmalab up --log-format`.
var formats = map[string]func(io.Writer) slog.Handler{
	"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
	"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
}

// has checks that a log has a line with this level, text and attributes.
func has(t *testing.T, format, log, level, text string, attributes map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		var ok bool
		if format == "json" {
			var x map[string]any
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatalf("%q is no JSON: %v", line, err)
			}
			ok = x["level"] == level && x["msg"] == text
			for k, v := range attributes {
				ok = ok && fmt.Sprint(x[k]) == fmt.Sprint(v)
			}
		} else {
			ok = strings.Contains(line, "level="+level+" ") && strings.Contains(line, fmt.Sprintf("msg=%q", text))
			for k, v := range attributes {
				ok = ok && (strings.Contains(line, fmt.Sprintf(" %s=%v", k, v)) || strings.Contains(line, fmt.Sprintf(" %s=%q", k, v)))
			}
		}
		if ok {
			return
		}
	}
	t.Errorf("%s: no line of level %s with text %q and %v in\n%s", format, level, text, attributes, log)
}

// A switch logs what happens at level INFO and trouble at WARN, and names port and link by attributes, in both
// formats.
func TestLog(t *testing.T) {
	for format, handler := range formats {
		var out bytes.Buffer
		var ends [2]*memcable.Port
		for i := range ends {
			ends[i], _ = memcable.Pair(memcable.Config{})
		}
		cfg := Config{
			Rack: "r", Links: []Link{{Host: "h0", Ifname: "p0"}, {Host: "h1", Ifname: "p1"}}, Program: forward.Program{}, Log: slog.New(handler(&out)),
			Open: func(i int, _ Link) (packetio.Port, error) { return ends[i], nil }, NewWaiter: newWaiter,
		}
		d, err := New(cfg)
		must(t, err)
		d.ports.setCarrier(1, d.ports.list[1].io, false)
		d.ports.setCarrier(1, d.ports.list[1].io, true)
		d.ports.lost(0, errors.New("the interface is gone"))
		must(t, d.ports.closePorts())
		log := out.String()
		first, second := map[string]any{"link": cfg.Links[0].Host}, map[string]any{"link": cfg.Links[1].Host, "carrier": false}
		has(t, format, log, "WARN", "carrier of a port", second)
		second["carrier"] = true
		has(t, format, log, "INFO", "carrier of a port", second)
		has(t, format, log, "INFO", "port is open", second)
		first["error"] = "the interface is gone"
		has(t, format, log, "WARN", "port is lost", first)
	}
}

// A journal of another program costs moved flows, so its loss is a warning with the file's name.
func TestLogOfTheJournal(t *testing.T) {
	rack, err := rackfile.Parse([]byte(strings.NewReplacer("PROGRAM", rackfile.ProgramSwordBox, "CONNECT", "cm").Replace(boxFile)))
	must(t, err)
	for format, handler := range formats {
		var out bytes.Buffer
		own := files{journal: filepath.Join(t.TempDir(), "journal")}
		must(t, os.WriteFile(own.journal, bytes.Repeat([]byte("no journal "), 1000), 0o600))
		rec, err := journalOf(rack, own, slog.New(handler(&out)))
		must(t, err)
		must(t, rec.Close())
		has(t, format, out.String(), "WARN", "the file was no journal of this program, and is empty now", map[string]any{"file": own.journal})
	}
}

package bundle

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func TestWriter(t *testing.T) {
	dir := t.TempDir()
	w := &writer{dir: filepath.Join(dir, "out")}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), maxLog/16+1)
	if err := os.WriteFile(filepath.Join(dir, "x.log"), append(long, "the end"...), 0o644); err != nil {
		t.Fatal(err)
	}
	w.copy(filepath.Join(dir, "x.log"), "log/x.log")
	w.copy(filepath.Join(dir, "none.log"), "log/none.log")
	w.copy(dir, "log/folder")
	w.json("bad.json", func() {}, nil)
	w.folder(filepath.Join(dir, "none"), "none")
	b, err := os.ReadFile(filepath.Join(w.dir, "log/x.log"))
	if err != nil || len(b) != maxLog || !bytes.HasSuffix(b, []byte("the end")) {
		t.Errorf("%d bytes of the log, %v", len(b), err)
	}
	r := &rack.Rack{Spec: &rackfile.Rack{Name: "lab", Seed: 42}}
	if err := w.readMe(r, &Reason{What: "it", Replay: "again --seed 42", Output: "oops"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, ReadMe))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "rdmalab dump") {
		t.Errorf("it says how to read packets that are not there:\n%s", text)
	}
	w.put(Packets, nil, nil)
	if err := w.readMe(r, &Reason{}); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(filepath.Join(w.dir, ReadMe)); err != nil || !strings.Contains(string(again), "rdmalab dump "+Packets) {
		t.Errorf("it does not say how to read the packets: %v\n%s", err, again)
	}
	for _, want := range []string{`Rack "lab", seed 42`, "again --seed 42", "oops", "Files:\n  log/x.log\n", "Missing:\n  bad.json: ", "log/folder: "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

package conform

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
)

// check returns the violations of a capture file.
func check(t *testing.T, file []byte) []Violation {
	t.Helper()
	var b flows.Book
	d, err := dump.New(io.Discard, dump.Config{Each: b.Add})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Dump("", bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	b.Sort()
	return Check(&b)
}

// The captures of a Linux kernel break no rule.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("../../wire/testdata/golden/*.pcap")
	if err != nil || len(names) < 60 {
		t.Fatalf("%d golden captures, %v", len(names), err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range check(t, file) {
			t.Errorf("%s: packet %d (%v): %s: %s", filepath.Base(name), v.Packet.Number, v.Packet.Opcode(), v.Rule.Name, v.Why)
		}
	}
}

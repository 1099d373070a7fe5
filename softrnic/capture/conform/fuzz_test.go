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

// No capture makes the check panic, and what it finds is in the capture.
func FuzzCheck(f *testing.F) {
	names, err := filepath.Glob("../../wire/testdata/golden/*.pcap")
	if err != nil || len(names) == 0 {
		f.Fatalf("%d golden captures, %v", len(names), err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var b flows.Book
		d, err := dump.New(io.Discard, dump.Config{Each: b.Add})
		if err != nil {
			t.Fatal(err)
		}
		_ = d.Dump("", bytes.NewReader(file)) // a broken file is checked as far as it can be read
		b.Sort()
		last := 0
		for _, v := range Check(&b) {
			if v.Packet.Number <= last || v.Packet.Number > len(b.Packets) || v.Rule.Name == "" || v.Why == "" {
				t.Errorf("violation %+v behind packet %d", v, last)
			}
			last = v.Packet.Number
		}
	})
}

// BenchmarkCheck holds the packets of 64 KiB WRITEs against the rules.
func BenchmarkCheck(b *testing.B) {
	file, err := os.ReadFile("../../wire/testdata/golden/rc_write_64k.pcap")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var book flows.Book
		d, err := dump.New(io.Discard, dump.Config{Each: book.Add})
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Dump("", bytes.NewReader(file)); err != nil {
			b.Fatal(err)
		}
		book.Sort()
		if len(Check(&book)) > 0 {
			b.Fatal("a violation")
		}
	}
}

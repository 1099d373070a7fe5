package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// goldenCount is the number of frames that testdata/golden/README.md states, so that the test fails
// on an empty directory.
const (
	goldenFiles = 62
	goldenRoCE  = 1871
)

// eachGolden calls f with every frame of every capture. Its reader handles only classic
// little-endian pcap; the complete reader, package pcapng, is of a higher level.
func eachGolden(tb testing.TB, f func(file string, index int, frame []byte)) (files int) {
	tb.Helper()
	const fileHeader, recordHeader = 24, 16
	names, err := filepath.Glob("testdata/golden/*.pcap")
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		if magic := binary.LittleEndian.Uint32(b); magic != 0xa1b2c3d4 {
			tb.Fatalf("%s: magic %#x", name, magic)
		}
		b = b[fileHeader:]
		for i := 0; len(b) > 0; i++ {
			n := int(binary.LittleEndian.Uint32(b[8:]))
			f(filepath.Base(name), i, b[recordHeader:recordHeader+n])
			b = b[recordHeader+n:]
		}
	}
	return len(names)
}

// Every RoCEv2 frame that two Linux kernels exchanged decodes, its ICRC verifies, and it is encoded
// to the same bytes again. Every other frame is ErrNotRoCE.
func TestGolden(t *testing.T) {
	var roce, other int
	var f Frame
	files := eachGolden(t, func(file string, i int, b []byte) {
		err := ParseFrame(b, &f)
		if errors.Is(err, ErrNotRoCE) {
			other++
			if CheckICRC(b) {
				t.Errorf("%s frame %d: not RoCEv2 and yet a right ICRC", file, i)
			}
			return
		}
		if err != nil {
			t.Errorf("%s frame %d: %v", file, i, err)
			return
		}
		roce++
		if !CheckICRC(b) {
			t.Errorf("%s frame %d: ICRC %#08x is wrong", file, i, f.ICRC)
		}
		if got := f.AppendTo(nil); !bytes.Equal(got, b) {
			t.Errorf("%s frame %d: encodes as\n%x, was\n%x", file, i, got, b)
		}
		if f.Len() != len(b) {
			t.Errorf("%s frame %d: Len() = %d, want %d", file, i, f.Len(), len(b))
		}
	})
	t.Logf("%d files, %d RoCEv2 frames, %d others", files, roce, other)
	if files != goldenFiles || roce != goldenRoCE {
		t.Errorf("%d files with %d RoCEv2 frames, want %d with %d", files, roce, goldenFiles, goldenRoCE)
	}
}

package pcapng

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// A reader that does not know the statistics block skips it, and the block's numbers are at the
// offsets of the format.
func TestStatistics(t *testing.T) {
	var buf bytes.Buffer
	w, err := NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.AddInterface("cn0 up", Ethernet)
	head := len(w.buf)
	if err := w.WriteStatistics(id, 0, 100, 7, "slow reader"); err != nil {
		t.Fatal(err)
	}
	block := w.buf[head:]
	if binary.LittleEndian.Uint32(block) != blockStatistics || len(block)%4 != 0 ||
		binary.LittleEndian.Uint64(block[24:]) != 100 || binary.LittleEndian.Uint64(block[36:]) != 7 {
		t.Errorf("block % x", block)
	}
	if err := w.WriteTruncated(id, 5, []byte("abc"), 1000, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteStatistics(id+1, 0, 0, 0, ""); !errors.Is(err, ErrNoInterface) {
		t.Errorf("unknown interface: %v", err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var p Packet
	if err := r.Next(&p); err != nil || string(p.Data) != "abc" || p.OrigLen != 1000 {
		t.Errorf("packet %+v, %v", p, err)
	}
	if err := r.Next(&p); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

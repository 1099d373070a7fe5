package pcapng

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// A reader takes the number of missing packets from the statistics, and the block's numbers are at the
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
	if err := r.Next(&p); !errors.Is(err, io.EOF) || r.Lost() != 7 {
		t.Errorf("end: %v, %d lost", err, r.Lost())
	}
}

// Of several statistics of an interface the last one counts.
func TestLostOfTheLastStatistics(t *testing.T) {
	var buf bytes.Buffer
	w, err := NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cn0", "ms0"} {
		if _, err := w.AddInterface(name, Ethernet); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range [][2]uint64{{0, 3}, {1, 1}, {0, 5}} {
		if err := w.WriteStatistics(int(n[0]), 0, 100, n[1], ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	c, err := Copy(io.Discard, bytes.NewReader(buf.Bytes()), 0)
	if err != nil || c.Lost != 6 {
		t.Errorf("%d lost, %v", c.Lost, err)
	}
	r, err := NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var p Packet
	if err := r.Next(&p); !errors.Is(err, io.EOF) || r.Lost() != 6 {
		t.Errorf("%d lost, %v", r.Lost(), err)
	}
}

package pcapng

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readAll returns copies of all packets and the error that ended them, nil for io.EOF.
func readAll(r io.Reader) (all []Packet, err error) {
	rd, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	for {
		var p Packet
		if err := rd.Next(&p); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return all, err
		}
		p.Data = bytes.Clone(p.Data)
		all = append(all, p)
	}
}

// The reader reads what the writer wrote: interfaces, times, bytes of every length modulo 4,
// comments.
func TestWriterReader(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"cn0 up", "cn0 down", "", "ms0 é"}
	for want, name := range names {
		if id, err := w.AddInterface(name, Ethernet); err != nil || id != want {
			t.Fatalf("AddInterface(%q) = %d, %v", name, id, err)
		}
	}
	var want []Packet
	for i := range 200 {
		p := Packet{
			Time: 1_790_000_000_123_456_789 + int64(i), Interface: i % len(names), Name: names[i%len(names)],
			LinkType: Ethernet, Data: bytes.Repeat([]byte{byte(i)}, i*7), OrigLen: i * 7, Comments: []string{},
		}
		comment := ""
		if i%3 == 0 {
			comment = strings.Repeat("x", i) + fmt.Sprint("dropped ", i)
			p.Comments = append(p.Comments, comment)
		}
		want = append(want, p)
		if err := w.WritePacket(p.Interface, p.Time, p.Data, comment); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(&file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Offset = 0
		got[i].Comments = append([]string{}, got[i].Comments...)
	}
	if d := cmp.Diff(want, got, cmp.Transformer("data", func(b []byte) string { return string(b) })); d != "" {
		t.Error(d)
	}
}

// The literal bytes of a file with one interface and one commented packet.
func TestWriterBytes(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface("cn0", Ethernet); err != nil {
		t.Fatal(err)
	}
	if err := w.WritePacket(0, 0x0102030405060708, []byte{0xaa, 0xbb, 0xcc, 0xdd, 0xee}, "hi"); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := unhex(t, `
		0a0d0d0a 2c000000 4d3c2b1a 0100 0000 ffffffffffffffff  section header, version 1.0, length unknown
			0400 0700 7264 6d61 6c61 6200 0000 0000 2c000000    shb_userappl "rdmalab"
		01000000 28000000 0100 0000 00000000                   interface, Ethernet, no limit
			0200 0300 636e3000 0900 0100 09000000 0000 0000 28000000  if_name "cn0", if_tsresol 9
		06000000 34000000 00000000 04030201 08070605 05000000 05000000  enhanced packet, 5 bytes of 5
			aabbccdd ee000000 0100 0200 68690000 0000 0000 34000000     opt_comment "hi"
	`)
	if d := cmp.Diff(want, file.Bytes()); d != "" {
		t.Error(d)
	}
}

func TestWriterRefuses(t *testing.T) {
	w, err := NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WritePacket(0, 0, nil, ""); !errors.Is(err, ErrNoInterface) {
		t.Errorf("no interface: %v", err)
	}
	if _, err := w.AddInterface(strings.Repeat("x", maxComment+1), Ethernet); !errors.Is(err, ErrTooLong) {
		t.Errorf("long name: %v", err)
	}
	if _, err := w.AddInterface("a", Ethernet); err != nil {
		t.Fatal(err)
	}
	if err := w.WritePacket(0, 0, make([]byte, MaxPacket+1), ""); !errors.Is(err, ErrTooLong) {
		t.Errorf("long packet: %v", err)
	}
	if err := w.WritePacket(0, 0, nil, strings.Repeat("x", maxComment+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("long comment: %v", err)
	}
	for range maxInterfaces - 1 {
		if _, err := w.AddInterface("a", Ethernet); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.AddInterface("a", Ethernet); !errors.Is(err, ErrTooLong) {
		t.Errorf("too many interfaces: %v", err)
	}
}

// fullDisk accepts limit bytes.
type fullDisk struct{ limit int }

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.limit)
	d.limit -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

// A full disk is reported by the first call that notices it, and by every later call.
func TestWriterFullDisk(t *testing.T) {
	w, err := NewWriter(&fullDisk{limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface("a", Ethernet); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1500)
	for range 2 * flushAt / len(data) {
		err = w.WritePacket(0, 0, data, "")
	}
	if !errors.Is(err, errFull) {
		t.Errorf("WritePacket: %v", err)
	}
	if err := w.Flush(); !errors.Is(err, errFull) {
		t.Errorf("Flush: %v", err)
	}
}

func TestWriterAllocates(t *testing.T) {
	w, err := NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface("a", Ethernet); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4200)
	n := testing.AllocsPerRun(1000, func() {
		if err := w.WritePacket(0, 1, data, "lost by rule f1"); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}

func BenchmarkWritePacket(b *testing.B) {
	w, err := NewWriter(io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.AddInterface("a", Ethernet); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 1088)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := w.WritePacket(0, 1, data, ""); err != nil {
			b.Fatal(err)
		}
	}
}

package pcapng

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// unhex reads lines of groups of hex digits, each followed by two blanks and an explanation.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	var b []byte
	for line := range strings.Lines(text) {
		digits, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		x, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		b = append(b, x...)
	}
	return b
}

// Two small files of each kind, written by hand.
const (
	classicLittleMicros = `
		d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000  file header
		01000000 02000000 03000000 05000000 aabbcc              1.000002 s, 3 bytes of 5
		02000000 00000000 00000000 00000000                     2 s, empty`
	classicBigNanos = `
		a1b23c4d 0002 0004 00000000 00000000 00040000 00000001  file header
		00000001 00000002 00000003 00000003 aabbcc              1.000000002 s`
	ngBig = `
		0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c  section header
		0000bad0 00000014 0102030405060708 00000014                    block of an unknown kind
		00000001 00000028 0001 0000 00000002                            interface, at most 2 bytes
			0002 0002 65300000 0009 0001 8a000000 0000 0000 00000028      if_name "e0", if_tsresol 2^-10
		00000001 00000020 0001 0000 00000000 000e 0008 0000000000000064 00000020  interface, if_tsoffset 100 s
		00000003 00000014 00000003 aabb0000 00000014                   simple packet, 2 bytes of 3
		00000006 0000003c 00000000 00000000 00000600 00000002 00000002  enhanced packet at 1.5 s
			aabb0000 0001 0001 78000000 0001 0001 79000000 0bb8 0000 0000 0000 0000003c  two comments, unknown option
		00000006 00000024 00000001 00000000 000003e8 00000001 00000001  enhanced packet of interface 1, 1000 us
			cc000000 00000024`
)

func TestReaderLiteral(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       []Packet
	}{
		{"classic little-endian µs", classicLittleMicros, []Packet{
			{Time: 1_000_002_000, LinkType: Ethernet, Data: []byte{0xaa, 0xbb, 0xcc}, OrigLen: 5, Offset: 24},
			{Time: 2_000_000_000, LinkType: Ethernet, Data: []byte{}, Offset: 43},
		}},
		{"classic big-endian ns", classicBigNanos, []Packet{
			{Time: 1_000_000_002, LinkType: Ethernet, Data: []byte{0xaa, 0xbb, 0xcc}, OrigLen: 3, Offset: 24},
		}},
		{"pcapng big-endian", ngBig, []Packet{
			{Name: "e0", LinkType: Ethernet, Data: []byte{0xaa, 0xbb}, OrigLen: 3, Offset: 120},
			{
				Time: 1_500_000_000, Name: "e0", LinkType: Ethernet, Data: []byte{0xaa, 0xbb}, OrigLen: 2,
				Comments: []string{"x", "y"}, Offset: 140,
			},
			{
				Time: 100_001_000_000, Interface: 1, LinkType: Ethernet, Data: []byte{0xcc}, OrigLen: 1,
				Offset: 200,
			},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := unhex(t, tc.file)
			// The reader gets one byte at a time: it must not expect more from a read.
			got, err := readAll(iotest.OneByteReader(bytes.NewReader(file)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			checkCuts(t, file, len(got))
		})
	}
}

// checkCuts reads the file truncated at every byte: the error is ErrTruncated with an offset inside
// the file, and there are no more packets than in the whole file.
func checkCuts(t *testing.T, file []byte, packets int) {
	t.Helper()
	for n := range file {
		got, err := readAll(bytes.NewReader(file[:n]))
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Offset > int64(n)) {
			t.Errorf("cut at %d: %v", n, err)
		}
		if err != nil && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrNotCapture) {
			t.Errorf("cut at %d: %v", n, err)
		}
		if len(got) > packets {
			t.Errorf("cut at %d: %d packets, the whole file has %d", n, len(got), packets)
		}
	}
}

func TestReaderSecondSection(t *testing.T) {
	var second bytes.Buffer
	w, err := NewWriter(&second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface("later", Ethernet); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WritePacket(0, 7, []byte{1}, ""), w.Flush()); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(bytes.NewReader(append(unhex(t, ngBig), second.Bytes()...)))
	if err != nil || len(got) != 4 || got[3].Name != "later" || got[3].Time != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestReaderErrors(t *testing.T) {
	const section = "0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000\n"
	const iface = "01000000 14000000 0100 0000 00000000 14000000\n"
	for _, tc := range []struct {
		name, file string
		want       error
		offset     int64
	}{
		{"empty", "", ErrNotCapture, 0},
		{"text", "68656c6c6f0a", ErrNotCapture, 0},
		{"gzip", "1f8b0800", ErrNotCapture, 0},
		{"huge record", "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000 00000000 00000000 ffffffff ffffffff", ErrCorrupt, 24},
		{"byte order", "0a0d0d0a 1c000000 00000000", ErrCorrupt, 0},
		{"version 2", "0a0d0d0a 1c000000 4d3c2b1a 0200 0000 ffffffffffffffff 1c000000", ErrCorrupt, 0},
		{"short section", "0a0d0d0a 10000000 4d3c2b1a 10000000", ErrCorrupt, 0},
		{"length 0", section + "06000000 00000000", ErrCorrupt, 28},
		{"length not of 4", section + "06000000 0d000000", ErrCorrupt, 28},
		{"huge block", section + "06000000 fcffff7f", ErrCorrupt, 28},
		{"lengths differ", section + "01000000 14000000 0100 0000 00000000 18000000", ErrCorrupt, 28},
		{"unknown block cut", section + "d0ba0000 fcffff7f 00", ErrTruncated, 28},
		{"short interface", section + "01000000 10000000 0100 0000 10000000", ErrCorrupt, 28},
		{"packet without interface", section + "06000000 20000000 0000000000000000000000000000000000000000 20000000", ErrCorrupt, 28},
		{"simple without interface", section + "03000000 10000000 00000000 10000000", ErrCorrupt, 28},
		{"short packet", section + iface + "06000000 10000000 00000000 10000000", ErrCorrupt, 48},
		{"captured too long", section + iface + "06000000 20000000 000000000000000000000000 01000000 01000000 20000000", ErrCorrupt, 48},
		{"option too long", section + iface + "06000000 24000000 000000000000000000000000 00000000 00000000 01000100 24000000", ErrCorrupt, 48},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readAll(bytes.NewReader(unhex(t, tc.file)))
			var e *Error
			if !errors.Is(err, tc.want) || !errors.As(err, &e) || e.Offset != tc.offset {
				t.Errorf("error %v, want %v at byte %d", err, tc.want, tc.offset)
			}
		})
	}
	broken := errors.New("broken cable")
	if _, err := readAll(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error of the reader: %v", err)
	}
}

func TestInterfaceTimes(t *testing.T) {
	for _, tc := range []struct {
		resol  uint8
		offset int64
		ticks  uint64
		want   int64
	}{
		{6, 0, 1_500_000, 1_500_000_000},
		{0, 0, 3, 3_000_000_000},
		{9, 0, 5, 5},
		{12, 0, 5999, 5},
		{127, 0, math.MaxUint64, 0},
		{0, 0, math.MaxUint64, math.MaxInt64},
		{9, 0, math.MaxUint64, math.MaxInt64},
		{0x80, 0, 2, 2_000_000_000},
		{0x80 | 1, 0, 3, 1_500_000_000},
		{0x80 | 32, 0, 1<<33 | 1<<31, 2_500_000_000},
		{0x80 | 64, 0, 1 << 63, 500_000_000},
		{0x80 | 127, 0, math.MaxUint64, 0},
		{0x80, 0, math.MaxUint64, math.MaxInt64},
		{9, 2, 5, 2_000_000_005},
		{9, -2, 5, -1_999_999_995},
		{9, math.MaxInt64, 5, math.MaxInt64},
		{9, math.MinInt64, 5, math.MinInt64},
		{9, 1, math.MaxInt64, math.MaxInt64},
	} {
		f := iface{resol: tc.resol, offset: tc.offset}
		if got := f.nanos(tc.ticks); got != tc.want {
			t.Errorf("resolution %#x, offset %d: nanos(%d) = %d, want %d", tc.resol, tc.offset, tc.ticks, got, tc.want)
		}
	}
}

// The reader reads files that tcpdump wrote: the captures with which the codec is tested.
func TestReaderGolden(t *testing.T) {
	names, err := filepath.Glob("../../wire/testdata/golden/*.pcap")
	if err != nil || len(names) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	packets := 0
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, p := range all {
			if p.LinkType != Ethernet || p.OrigLen != len(p.Data) || p.Time == 0 {
				t.Errorf("%s: link type %d, %d bytes of %d, time %d", name, p.LinkType, len(p.Data), p.OrigLen, p.Time)
			}
		}
		packets += len(all)
	}
	if packets != 2206 {
		t.Errorf("%d packets, want 2206", packets)
	}
}

// FuzzReader: no file makes the reader panic, return more bytes than the file has, or run without
// end.
func FuzzReader(f *testing.F) {
	for _, text := range []string{classicLittleMicros, classicBigNanos, ngBig} {
		f.Add(unhex(f, text))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		rd, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		var p Packet
		last := int64(-1)
		for {
			err := rd.Next(&p)
			if errors.Is(err, io.EOF) {
				return
			}
			var e *Error
			if err != nil {
				if !errors.As(err, &e) || e.Offset > int64(len(file)) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if p.Offset <= last || len(p.Data) > len(file) {
				t.Fatalf("packet at %d of %d bytes behind one at %d", p.Offset, len(p.Data), last)
			}
			last = p.Offset
		}
	})
}

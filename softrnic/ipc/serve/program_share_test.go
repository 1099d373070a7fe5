package serve

import (
	"bytes"
	"testing"
)

// A line of /proc/PID/maps has a file or none, with a name or without; nothing else is a mapping.
func TestLinesOfMaps(t *testing.T) {
	for line, want := range map[string]mapping{
		"7f0000000000-7f0000002000 rw-p 00000000 00:00 0 ":                                  {from: 0x7f0000000000, to: 0x7f0000002000, rights: "rw-p"},
		"00400000-00401000 r--p 00001000 fe:01 77                 /usr/bin/program":         {from: 0x400000, to: 0x401000, offset: 0x1000, rights: "r--p", file: inode{0xfe01, 77}, name: "/usr/bin/program"},
		"7f0000000000-7f0000002000 rw-s 00003000 00:01 12 /memfd:rdmalab-share-7 (deleted)": {from: 0x7f0000000000, to: 0x7f0000002000, offset: 0x3000, rights: "rw-s", file: inode{1, 12}, name: "/memfd:rdmalab-share-7"},
		"55d0c6d5e000-55d0c6d7f000 rw-p 00000000 00:00 0                          [heap]":   {from: 0x55d0c6d5e000, to: 0x55d0c6d7f000, rights: "rw-p", name: "[heap]"},
		"7fffffffe000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]":  {from: 0x7fffffffe000, to: 0x7ffffffff000, rights: "rw-p", name: "[stack]"},
		"": {}, "7f00-7f01": {}, "7f0000002000-7f0000000000 rw-p 00000000 00:00 0": {}, "7f0000000000-7f0000002000 rw 00000000 00:00 0": {},
	} {
		got, ok := parseMapping(line)
		if ok != (want != mapping{}) || ok && got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
		if to, found := endOf([]byte(line)); ok && (!found || to != got.to) || line == "" && found {
			t.Errorf("%q: ends at %#x, %v", line, to, found)
		}
	}
}

// A view reads and writes over the border of its parts, and nothing outside of them.
func TestViewOfShares(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 16), bytes.Repeat([]byte("b"), 16)
	v := &sharedView{parts: []sharedPart{{0x1000, 16, a}, {0x1010, 16, b}, {0x1020, 8, nil}, {0x1028, 8, nil}}, far: &farBytes{0x1020, make([]byte, 8)}}
	var got [6]byte
	if !v.Read(got[:], 0x100d) || string(got[:]) != "aaabbb" {
		t.Errorf("read %q", got)
	}
	if !v.Write([]byte("123456"), 0x100e) || string(a[12:]) != "aa12" || string(b[:6]) != "3456bb" {
		t.Errorf("written %q %q", a, b)
	}
	// What is not shared is reached by the other access, as far as that has it.
	if !v.Write([]byte("123456"), 0x101d) || string(b[13:]) != "123" || !v.Read(got[:], 0x101d) || string(got[:]) != "123456" {
		t.Errorf("over the border of what is shared: %q, read %q", b, got)
	}
	for _, at := range []uint64{0xfff, 0x1023, 0x1026, 0x1028, 0x1030, 0} {
		if v.Read(got[:], at) || v.Write(got[:], at) {
			t.Errorf("at %#x", at)
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { v.Write(got[:], 0x1008); v.Read(got[:], 0x1000) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// farBytes is far memory of a few bytes.
type farBytes struct {
	at    uint64
	bytes []byte
}

func (p *farBytes) Read(b []byte, at uint64) bool {
	return at-p.at <= uint64(len(p.bytes)-len(b)) && copy(b, p.bytes[at-p.at:]) == len(b)
}

func (p *farBytes) Write(b []byte, at uint64) bool {
	return at-p.at <= uint64(len(p.bytes)-len(b)) && copy(p.bytes[at-p.at:], b) == len(b)
}

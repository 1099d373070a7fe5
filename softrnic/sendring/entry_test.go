package sendring

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The bytes of an entry are those of mlx5.
func TestEntryBytes(t *testing.T) {
	e := Entry{Op: CmpSwap, Index: 0x1234, QPN: 0xabcdef, Flags: Signalled | Fence, RemoteAddr: 0x1122334455667788, RKey: 0x99aabbcc, SwapAdd: 1, Compare: 2, NSGE: 1}
	e.SGL[0] = verbs.SGE{Addr: 0x77, Length: 8, LKey: 5}
	want := []byte{
		0, 0x12, 0x34, 0x11, 0xab, 0xcd, 0xef, 4, 0, 0, 0, 0x88, 0, 0, 0, 0,
		0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2,
		0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0x77,
	}
	if got := e.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
	w := Entry{Op: Wait, Count: 0x01020304, Object: 0x05060708}
	b := w.AppendTo(nil)
	if len(b) != BlockSize || b[OffSegments] != 2 || !bytes.Equal(b[OffCount:OffObject+4], []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("WAIT % x", b)
	}
}

// Parse refuses what it cannot represent.
func TestParseRefuses(t *testing.T) {
	valid := (&Entry{Op: Read, NSGE: 2}).AppendTo(nil)
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		err    error
	}{
		"opcode":       {func(b []byte) []byte { b[OffOpcode] = 0x30; return b }, ErrOpcode},
		"no segment":   {func(b []byte) []byte { b[OffSegments] = 0; return b }, ErrSegments},
		"too many":     {func(b []byte) []byte { b[OffSegments] = 20; return append(b, make([]byte, 999)...) }, ErrSegments},
		"17 SGEs":      {func(b []byte) []byte { b[OffSegments] = 19; return append(b, make([]byte, 999)...) }, ErrSegments},
		"no address":   {func(b []byte) []byte { b[OffSegments] = 1; return b }, ErrSegments},
		"WAIT, longer": {func(b []byte) []byte { b[OffOpcode] = byte(Wait); b[OffSegments] = 3; return b }, ErrSegments},
		"inline":       {func(b []byte) []byte { b[32] |= 0x80; return b }, ErrInline},
		"short":        {func(b []byte) []byte { return b[:40] }, ErrShort},
		"empty":        {func([]byte) []byte { return nil }, ErrShort},
	} {
		var e Entry
		if err := Parse(c.change(bytes.Clone(valid)), &e); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
}

// FuzzParse: no bytes make Parse panic, and what it accepts has the same fields when it is written and
// parsed again.
func FuzzParse(f *testing.F) {
	for op := range Opcode(32) {
		e := Entry{Op: op, Flags: Signalled, NSGE: 1, Segments: 3}
		f.Add(e.AppendTo(nil))
		e.NSGE = 9
		f.Add(e.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again Entry
		if len(b) >= 8 && Blocks(b) < 1 {
			t.Fatal("no block")
		}
		if Parse(b, &e) != nil {
			return
		}
		out := e.AppendTo(nil)
		if len(out) != e.Len() || len(out)%BlockSize != 0 || len(out) > MaxBlocks*BlockSize || len(out) != Blocks(out)*BlockSize {
			t.Fatalf("%d bytes, Len %d", len(out), e.Len())
		}
		if err := Parse(out, &again); err != nil || again != e {
			t.Fatalf("%v\n%+v\n%+v", err, e, again)
		}
	})
}

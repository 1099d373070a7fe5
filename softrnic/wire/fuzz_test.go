package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzParseFrame: no bytes make the codec panic, and a frame that parses is encoded as one that
// parses to the same fields and has a right ICRC.
func FuzzParseFrame(f *testing.F) {
	seen := map[Opcode]bool{}
	var frame Frame
	eachGolden(f, func(_ string, _ int, b []byte) {
		if ParseFrame(b, &frame) == nil && !seen[frame.BTH.Opcode] {
			seen[frame.BTH.Opcode] = true
			f.Add(b)
		}
	})
	for _, op := range []Opcode{CNP, RCSendOnlyInv, UCWriteOnlyImm, 0x15} {
		f.Add(testFrame(op, true, true, 5).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		CheckICRC(b)
		var first, second Frame
		if err := ParseFrame(b, &first); err != nil {
			return
		}
		_ = first.String() // must not panic
		again := first.AppendTo(nil)
		if err := ParseFrame(again, &second); err != nil {
			t.Fatalf("%v\nof %x\nwritten as %x", err, b, again)
		}
		if d := cmp.Diff(&first, &second, cmpopts.IgnoreFields(Frame{}, "ICRC")); d != "" {
			t.Fatalf("-first +second\n%s", d)
		}
		if !CheckICRC(again) || len(again) != first.Len() {
			t.Fatalf("ICRC %t, %d bytes, Len() = %d", CheckICRC(again), len(again), first.Len())
		}
		fixed := bytes.Clone(b)
		if !putICRC(fixed) || !CheckICRC(fixed) {
			t.Fatal("it parses and takes no ICRC")
		}
	})
}

// FuzzParsePacket is FuzzParseFrame for the payload of a UDP datagram.
func FuzzParsePacket(f *testing.F) {
	for op := range 256 {
		f.Add(testFrame(Opcode(op), false, false, 7).Packet.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second Packet
		if err := ParsePacket(b, &first); err != nil {
			return
		}
		again := first.AppendTo(nil)
		if err := ParsePacket(again, &second); err != nil || len(again) != first.Len() {
			t.Fatalf("%v\nof %x\nwritten as %x", err, b, again)
		}
		if d := cmp.Diff(&first, &second); d != "" {
			t.Fatalf("-first +second\n%s", d)
		}
	})
}

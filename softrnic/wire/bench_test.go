package wire

import (
	"fmt"
	"testing"
)

var benchSizes = []int{64, 1024, 4096}

// Encoding, decoding and checking a frame allocate no memory; nor does the decision that a frame is
// not RoCEv2.
func TestAllocations(t *testing.T) {
	buf := make([]byte, 0, 8192)
	var parsed Frame
	for _, v6 := range []bool{false, true} {
		f := testFrame(RCWriteOnlyImm, v6, true, 1024)
		other := f.AppendTo(nil)
		other[f.Eth.Len()+f.ipLen()+3]++ // UDP port 4792
		for name, step := range map[string]func(){
			"AppendTo":   func() { buf = f.AppendTo(buf[:0]) },
			"ParseFrame": func() { _ = ParseFrame(f.AppendTo(buf[:0]), &parsed) },
			"CheckICRC":  func() { CheckICRC(f.AppendTo(buf[:0])) },
			"PutICRC":    func() { putICRC(f.AppendTo(buf[:0])) },
			"ErrNotRoCE": func() { _ = ParseFrame(other, &parsed) },
		} {
			if n := testing.AllocsPerRun(100, step); n != 0 {
				t.Errorf("%s, v6 %t: %v allocations", name, v6, n)
			}
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			f := testFrame(RCWriteOnly, false, false, n)
			buf := make([]byte, 0, 8192)
			b.SetBytes(int64(f.Len()))
			b.ReportAllocs()
			for b.Loop() {
				buf = f.AppendTo(buf[:0])
			}
		})
	}
}

// BenchmarkDecode measures what a NIC does with a frame: parse it and check its ICRC.
func BenchmarkDecode(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			frame := testFrame(RCWriteOnly, false, false, n).AppendTo(nil)
			var f Frame
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if err := ParseFrame(frame, &f); err != nil || !CheckICRC(frame) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkParse measures what a switch does with a frame.
func BenchmarkParse(b *testing.B) {
	frame := testFrame(RCWriteOnly, false, false, 1024).AppendTo(nil)
	var f Frame
	b.ReportAllocs()
	for b.Loop() {
		if err := ParseFrame(frame, &f); err != nil {
			b.Fatal(err)
		}
	}
}

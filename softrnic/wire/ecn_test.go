package wire

import (
	"bytes"
	"testing"
)

// A mark changes the congestion field and the IPv4 checksum alone: the frame still parses, its ICRC is
// right, and its checksum is the one that a sender of the marked frame would compute.
// Packets without ECN (CA17-14) are never marked.
func TestMarkCE(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, tagged := range []bool{false, true} {
			for class := range 256 {
				f := testFrame(RCWriteOnly, v6, tagged, 64)
				f.IPv4.TOS, f.IPv6.TrafficClass = uint8(class), uint8(class)
				f.IPv4.ID = uint16(class * 257)
				b := f.AppendTo(nil)
				e, ok := ECNOf(b)
				dscp, _ := DSCPOf(b)
				if !ok || e != ECN(class&3) || dscp != uint8(class>>2) {
					t.Fatalf("class %#x: ECN %v, DSCP %d, %t", class, e, dscp, ok)
				}
				f.IPv4.TOS, f.IPv6.TrafficClass = uint8(class)|3, uint8(class)|3
				want := f.AppendTo(nil)
				if e == NotECT {
					want = bytes.Clone(b)
				}
				forced := bytes.Clone(b)
				if got := f.AppendTo(nil); !SetCE(forced) || !bytes.Equal(forced, got) {
					t.Errorf("%v: set by force:\n%x, want\n%x", e, forced, got)
				}
				if MarkCE(b) != (e != NotECT) {
					t.Errorf("%v: the result is wrong", e)
				}
				if !bytes.Equal(b, want) || !CheckICRC(b) {
					t.Fatalf("v6 %t, tagged %t, class %#x:\n%x, want\n%x", v6, tagged, class, b, want)
				}
			}
		}
	}
}

// A header whose checksum is wrong stays wrong when it is marked.
func TestMarkKeepsAWrongChecksum(t *testing.T) {
	f := testFrame(RCSendOnly, false, false, 8)
	f.IPv4.TOS = uint8(ECT0)
	b := f.AppendTo(nil)
	b[ethernetLen+10] ^= 0x40
	var got Frame
	if !MarkCE(b) || ParseFrame(b, &got) == nil {
		t.Fatal("the frame parses")
	}
}

func TestNoTrafficClass(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, 14), make([]byte, 60), append(make([]byte, 12), 0x08, 0x00, 0x45)} {
		if _, ok := ECNOf(b); ok || MarkCE(b) {
			t.Errorf("%x has a traffic class", b)
		}
	}
}

// FuzzMarkCE: no bytes make it panic, and a mark changes neither length nor any byte but those of the
// traffic class and of the IPv4 checksum.
func FuzzMarkCE(f *testing.F) {
	f.Add(testFrame(RCWriteOnly, false, false, 4).AppendTo(nil))
	f.Add(testFrame(RCWriteOnly, true, true, 4).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		was := bytes.Clone(b)
		marked := MarkCE(b)
		if e, ok := ECNOf(b); marked && (!ok || e != CE) {
			t.Fatalf("%x is not marked", b)
		}
		changed := 0
		for i := range b {
			if b[i] != was[i] {
				changed++
			}
		}
		if changed > 3 || !marked && changed > 0 {
			t.Fatalf("%x became %x", was, b)
		}
	})
}

package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// The seed is the CRC register after eight bytes of ones.
func TestICRCSeed(t *testing.T) {
	if got := ^crc32.ChecksumIEEE(bytes.Repeat([]byte{0xff}, 8)); got != icrcSeed {
		t.Errorf("seed %#x, want %#x", got, icrcSeed)
	}
}

// Flipping any bit of the IP datagram makes the ICRC wrong, except for the bits that routers may
// change (IBTA 7.8.1, A17.3.3). For the fields that CheckICRC reads (version, length, protocol,
// ports), any result but a right ICRC is accepted.
func TestICRCCoverage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		v6     bool
		masked map[int]byte // byte of the datagram: bits that the ICRC does not cover
	}{
		{"IPv4", false, map[int]byte{1: 0xff, 8: 0xff, 10: 0xff, 11: 0xff, 26: 0xff, 27: 0xff, 32: 0xff}},
		{"IPv6", true, map[int]byte{0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff, 7: 0xff, 46: 0xff, 47: 0xff, 52: 0xff}},
	} {
		for _, tagged := range []bool{false, true} {
			f := testFrame(RCWriteOnly, tc.v6, tagged, 101)
			b := f.AppendTo(nil)
			ip := f.Eth.Len()
			for i := range b[ip:] {
				for bit := range 8 {
					mask := byte(1) << bit
					b[ip+i] ^= mask
					if got, want := CheckICRC(b), tc.masked[i]&mask != 0; got != want {
						t.Errorf("%s, tagged %t: byte %d bit %d flipped: CheckICRC() = %t", tc.name, tagged, i, bit, got)
					}
					b[ip+i] ^= mask
				}
			}
		}
	}
}

// putICRC computes the ICRC of a changed frame.
func TestPutICRC(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		f := testFrame(RCSendOnly, v6, true, 64)
		b := append(f.AppendTo(nil), 0, 0) // with Ethernet padding
		f.BTH.DestQP = 0x222
		want := append(f.AppendTo(nil), 0, 0)
		b[f.Eth.Len()+f.ipLen()+udpLen+6] = 2
		b[f.Eth.Len()+f.ipLen()+udpLen+7] = 0x22
		if CheckICRC(b) {
			t.Error("the ICRC does not cover the destination QP")
		}
		if !putICRC(b) || !CheckICRC(b) || !bytes.Equal(b, want) {
			t.Errorf("v6 %t: %x, want %x", v6, b, want)
		}
	}
}

// The ICRC of a frame with impossible lengths is never right, and is never written.
func TestICRCBadLengths(t *testing.T) {
	f := testFrame(RCSendOnly, false, false, 64)
	for total := range 200 {
		b := f.AppendTo(nil)
		b[atIPv4+2], b[atIPv4+3] = 0, byte(total)
		before := bytes.Clone(b)
		fits := total >= 20+8+12+4 && total <= len(b)-atIPv4
		if CheckICRC(b) != (total == len(b)-atIPv4) {
			t.Errorf("total length %d: CheckICRC() = %t", total, CheckICRC(b))
		}
		if putICRC(b) != fits || (!fits && !bytes.Equal(b, before)) {
			t.Errorf("total length %d: PutICRC() = %t", total, !fits)
		}
	}
}

// The last bytes are summed in different ways, depending on their number, and the sum is the same.
func TestICRCOfAnyLength(t *testing.T) {
	var sealer Sealer
	for _, v6 := range []bool{false, true} {
		for n := range 2 * sealBuf {
			b := make([]byte, ipv6Len+udpLen+bthLen+n)
			for i := range b {
				b[i] = byte(i*7 + n)
			}
			masks := icrcMaskIPv4[:]
			if v6 {
				masks = icrcMaskIPv6[:]
			}
			masked := append(bytes.Repeat([]byte{0xff}, 8), b...)
			for i, m := range masks {
				w := masked[8+8*i:]
				binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|m)
			}
			want := crc32.ChecksumIEEE(masked)
			if got := icrc(b, v6); got != want {
				t.Fatalf("IPv6 %v, %d bytes behind: %#x, want %#x", v6, n, got, want)
			}
			if got := sealer.icrc(b, v6); got != want {
				t.Fatalf("IPv6 %v, %d bytes behind: a Sealer says %#x, want %#x", v6, n, got, want)
			}
		}
	}
}

// A Sealer computes and checks the same ICRC as AppendTo and CheckICRC.
func TestSealer(t *testing.T) {
	var s Sealer
	for _, v6 := range []bool{false, true} {
		for _, op := range []Opcode{RCAck, RCAtomicAck, RCCmpSwap, RCWriteOnly} {
			f := testFrame(op, v6, true, 101)
			b := s.AppendFrame([]byte("before"), f)
			if want := f.AppendTo([]byte("before")); !bytes.Equal(b, want) || !s.Check(b[6:]) {
				t.Errorf("%v: %x, want %x", op, b, want)
			}
			b[len(b)-5] ^= 1
			if s.Check(b[6:]) || s.Check(nil) || s.Check(b[:40]) {
				t.Errorf("%v: a damaged frame is right", op)
			}
		}
	}
}

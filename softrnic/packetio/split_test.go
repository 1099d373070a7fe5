package packetio

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"testing"
)

// super builds a UDP datagram of n segments of size bytes.
func super(v6 bool, port uint16, n, size int) Frame {
	ip := ipv4Len
	if v6 {
		ip = ipv6Len
	}
	b := make([]byte, ethernetLen+ip+udpLen+n*size)
	for i := range b {
		b[i] = byte(i)
	}
	h := b[ethernetLen:]
	if v6 {
		binary.BigEndian.PutUint16(b[12:], etherTypeIPv6)
		h[6] = protocolUDP
	} else {
		binary.BigEndian.PutUint16(b[12:], etherTypeIPv4)
		h[0], h[9] = 0x45, protocolUDP
		binary.BigEndian.PutUint16(h[4:], 0xffff) // the identification wraps
		binary.BigEndian.PutUint16(h[6:], 0x4000)
	}
	binary.BigEndian.PutUint16(h[ip+2:], port)
	return Frame{Data: b, SegSize: size, CsumPartial: true, Port: 3}
}

func TestSplit(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		f := super(v6, rocePort, 3, 60)
		f.Data = f.Data[:len(f.Data)-10] // the last one is shorter
		f.Origin = 7
		if f.Packets() != 3 || !f.Splittable() {
			t.Fatalf("v6 %v: Packets = %d", v6, f.Packets())
		}
		var b Batch
		b.Split(f)
		if len(b.Frames) != 3 {
			t.Fatalf("%d frames", len(b.Frames))
		}
		var payload []byte
		for i, g := range b.Frames {
			l, ok := locate(g.Data)
			if !ok || g.SegSize != 0 || g.CsumPartial || g.Port != 3 || g.Origin != 7 {
				t.Fatalf("segment %d: %+v", i, g)
			}
			payload = append(payload, g.Data[l.payload:]...)
			if n := binary.BigEndian.Uint16(g.Data[l.l4+4:]); int(n) != len(g.Data)-l.l4 {
				t.Errorf("segment %d: UDP length %d", i, n)
			}
			if v6 {
				continue
			}
			h := g.Data[l.ip:l.l4]
			if id := binary.BigEndian.Uint16(h[4:]); id != 0xffff+uint16(i) {
				t.Errorf("segment %d: identification %#x", i, id)
			}
			if Fold(Sum(h)) != 0xffff || int(binary.BigEndian.Uint16(h[2:])) != len(g.Data)-l.ip {
				t.Errorf("segment %d: bad IP header %x", i, h)
			}
		}
		if l, _ := locate(f.Data); !bytes.Equal(payload, f.Data[l.payload:]) {
			t.Error("payload changed")
		}
	}
}

func TestSplitLeavesOthersWhole(t *testing.T) {
	plain := super(false, rocePort, 1, 60)
	plain.SegSize = 0
	for _, f := range []Frame{super(false, 53, 3, 60), plain, {Data: make([]byte, 60)}, {Data: nil, SegSize: 10}} {
		var b Batch
		b.Split(f)
		if len(b.Frames) != 1 || len(b.Frames[0].Data) != len(f.Data) || b.Frames[0].SegSize != f.SegSize {
			t.Errorf("%+v became %d frames", f, len(b.Frames))
		}
	}
}

// A super-frame with more packets than any sender makes stays one packet, everywhere: what counts the
// packets that have come in and those that have left counts the same number.
func TestFrameOfTooManySegmentsIsOnePacket(t *testing.T) {
	for _, port := range []uint16{rocePort, oneRMAPort} {
		f := super(false, port, maxSegments+1, 20)
		if f.Splittable() || f.Packets() != 1 {
			t.Errorf("port %d: splittable %v, %d packets", port, f.Splittable(), f.Packets())
		}
		f = super(false, port, maxSegments, 20)
		if !f.Splittable() || f.Packets() != maxSegments {
			t.Errorf("port %d: splittable %v, %d packets", port, f.Splittable(), f.Packets())
		}
	}
}

func TestFinishChecksum(t *testing.T) {
	f := super(false, 53, 1, 61)
	f.SegSize = 0
	l, _ := locate(f.Data)
	f.CsumStart, f.CsumOffset = uint16(l.l4), 6
	pseudo := Sum(f.Data[l.ip+12:l.ip+20]) + protocolUDP + uint64(len(f.Data)-l.l4)
	binary.BigEndian.PutUint16(f.Data[l.l4+6:], Fold(pseudo))
	f.FinishChecksum()
	if got := Fold(pseudo + Sum(f.Data[l.l4:])); got != 0xffff || f.CsumPartial {
		t.Errorf("the datagram sums to %#x", got)
	}
	f = Frame{Data: make([]byte, 20), CsumPartial: true, CsumStart: 19, CsumOffset: 6}
	if f.FinishChecksum(); f.CsumPartial {
		t.Error("flag left")
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(super(false, rocePort, 3, 60).Data, 60)
	f.Add(super(true, rocePort, 2, 8).Data, 8)
	f.Fuzz(func(t *testing.T, data []byte, seg int) {
		fr := Frame{Data: data, SegSize: seg}
		var b Batch
		b.Split(fr)
		if n := fr.Packets(); fr.Splittable() && n != len(b.Frames) {
			t.Fatalf("Packets = %d, Split made %d", n, len(b.Frames))
		}
	})
}

// Segments makes the same packets in place, one after the other, also if they are shorter than
// their headers.
func TestSegments(t *testing.T) {
	var s Segments
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{16, 20, 61, 62, 63, 1000} {
			for _, cut := range []int{0, 3, size - 1} {
				f := super(v6, rocePort, 5, size)
				f.Data = f.Data[:len(f.Data)-cut]
				var want Batch
				want.Split(f)
				if n := s.Open(f); n != len(want.Frames) {
					t.Fatalf("%d packets, want %d", n, len(want.Frames))
				}
				for i := range want.Frames {
					if got := s.Append([]byte("x"), i); !bytes.Equal(got[1:], want.Frames[i].Data) {
						t.Fatalf("v6 %v, size %d, packet %d appended: %x", v6, size, i, got)
					}
				}
				for i := range want.Frames {
					if got := s.Packet(i); !bytes.Equal(got, want.Frames[i].Data) {
						t.Fatalf("v6 %v, size %d, packet %d: %x, want %x", v6, size, i, got, want.Frames[i].Data)
					}
				}
			}
		}
	}
	if f := super(false, rocePort+2, 3, 60); s.Open(f) != 0 {
		t.Error("a datagram to another port was opened")
	}
}

// FuzzSegments: whatever a frame is, the packets in place are those that AppendSegment makes.
func FuzzSegments(f *testing.F) {
	f.Add(super(false, rocePort, 3, 60).Data, 60)
	f.Add(super(true, rocePort, 9, 20).Data, 20)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		frame := Frame{Data: b, SegSize: size}
		var want Batch
		if frame.Splittable() {
			want.Split(frame)
		}
		var s Segments
		if n := s.Open(frame); n != len(want.Frames) {
			t.Fatalf("%d packets, want %d", n, len(want.Frames))
		}
		for i := range want.Frames {
			if got := s.Packet(i); !bytes.Equal(got, want.Frames[i].Data) {
				t.Fatalf("packet %d: %x, want %x", i, got, want.Frames[i].Data)
			}
		}
	})
}

func BenchmarkSegments(b *testing.B) {
	for _, size := range []int{36, 4112} {
		f := super(false, rocePort, 15, size)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			var s Segments
			for b.Loop() {
				for i := range s.Open(f) {
					s.Packet(i)
				}
				binary.BigEndian.PutUint16(f.Data[2+ethernetLen:], 0)
			}
		})
	}
}

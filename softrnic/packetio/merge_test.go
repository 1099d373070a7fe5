package packetio

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// rocePacket is a packet as a NIC builds it.
func rocePacket(v6 bool, id uint16, payload []byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00}
	if v6 {
		b[12], b[13] = 0x86, 0xdd
		b = append(b, 0x60, 0, 0, 0, 0, 0, protocolUDP, 64)
		b = append(b, bytes.Repeat([]byte{0xfd}, 32)...)
		binary.BigEndian.PutUint16(b[14+4:], uint16(udpLen+len(payload)))
	} else {
		b = append(b, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, protocolUDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		ip := b[14:]
		binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Len+udpLen+len(payload)))
		binary.BigEndian.PutUint16(ip[4:], id)
		binary.BigEndian.PutUint16(ip[10:], ^Fold(Sum(ip)))
	}
	b = append(b, 0xc0, 1, 0x12, 0xb7, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(b[len(b)-4:], uint16(udpLen+len(payload)))
	return append(b, payload...)
}

// merged returns the super-frame of the first run.
func merged(frames []Frame, limit int) (Frame, int) {
	run := FirstRun(frames, limit)
	if run.Frames == 1 {
		return frames[0], 1
	}
	data, f := run.AppendHeaders(nil, frames)
	for i := range run.Frames {
		data = append(data, frames[i].Data[run.Headers:]...)
	}
	f.Data = data
	return f, run.Frames
}

// A super-frame is split into the packets that were merged, for all packets that merge.
func TestMergeThenSplit(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		v6 := r.IntN(2) == 0
		id := uint16(r.Uint32())
		var in, out Batch
		size := 16 + r.IntN(1000)
		for range 1 + r.IntN(80) {
			if r.IntN(10) == 0 {
				size = 16 + r.IntN(1000)
			}
			payload := make([]byte, size)
			for i := range payload {
				payload[i] = byte(r.Uint32())
			}
			in.Add(0, rocePacket(v6, id, payload))
			if id++; r.IntN(20) == 0 {
				id++
			}
		}
		supers := 0
		for rest := in.Frames; len(rest) > 0; {
			f, n := merged(rest, 9000)
			if n > 1 {
				supers++
				if f.Packets() != n || !f.Splittable() {
					t.Fatalf("seed %d: %d packets became a frame of %d", seed, n, f.Packets())
				}
			}
			out.Split(f)
			rest = rest[n:]
		}
		if len(out.Frames) != len(in.Frames) {
			t.Fatalf("seed %d: %d packets became %d", seed, len(in.Frames), len(out.Frames))
		}
		for i := range in.Frames {
			if !bytes.Equal(in.Frames[i].Data, out.Frames[i].Data) {
				t.Fatalf("seed %d: packet %d\n%x\nbecame\n%x", seed, i, in.Frames[i].Data, out.Frames[i].Data)
			}
		}
		if len(in.Frames) > 40 && supers == 0 {
			t.Errorf("seed %d: nothing was merged", seed)
		}
	}
}

func TestWhatStaysAlone(t *testing.T) {
	payload := make([]byte, 100)
	for name, change := range map[string]func(b []byte) []byte{
		"another source MAC":   func(b []byte) []byte { b[11] ^= 1; return b },
		"ECN mark":             func(b []byte) []byte { b[15] ^= 1; return b },
		"an IP ID left out":    func(b []byte) []byte { return rocePacket(false, 9, payload) },
		"a fragment":           func(b []byte) []byte { b[20] |= 0x20; return b },
		"another TTL":          func(b []byte) []byte { b[22]--; return b },
		"wrong IP checksum":    func(b []byte) []byte { b[24] ^= 1; return b },
		"another destination":  func(b []byte) []byte { b[33] ^= 1; return b },
		"another source port":  func(b []byte) []byte { b[35] ^= 1; return b },
		"another port":         func(b []byte) []byte { b[37] ^= 2; return b },
		"the other NIC's port": func(b []byte) []byte { b[37] = 0xb8; return b },
		"a UDP checksum":       func(b []byte) []byte { b[41] = 1; return b },
		"bytes behind":         func(b []byte) []byte { return append(b, 0) },
		"longer than first":    func([]byte) []byte { return rocePacket(false, 8, make([]byte, 101)) },
		"no payload":           func([]byte) []byte { return rocePacket(false, 8, nil) },
		"IPv6":                 func([]byte) []byte { return rocePacket(true, 8, payload) },
		"cut":                  func(b []byte) []byte { return b[:30] },
		"nothing":              func([]byte) []byte { return nil },
		"longer than the link": func([]byte) []byte { return rocePacket(false, 8, make([]byte, 100)) },
	} {
		limit := 142
		if name == "longer than the link" {
			limit--
		}
		frames := []Frame{{Data: rocePacket(false, 7, payload)}, {Data: change(rocePacket(false, 8, payload))}}
		if run := FirstRun(frames, limit); run.Frames != 1 {
			t.Errorf("%s: merged %d frames", name, run.Frames)
		}
		FirstRun(frames[1:], limit) // must not fail for it, either
	}
	f := Frame{Data: rocePacket(false, 8, payload)}
	for _, second := range []Frame{{Data: f.Data, Port: 1}, {Data: f.Data, SegSize: 10}, {Data: f.Data, CsumPartial: true}} {
		if run := FirstRun([]Frame{{Data: rocePacket(false, 7, payload)}, second}, 1500); run.Frames != 1 {
			t.Errorf("merged %+v", second)
		}
	}
}

// Messages of 1RMA travel as super-frames, too.
func TestMergeOfOneRMA(t *testing.T) {
	var frames []Frame
	for i := range 3 {
		b := rocePacket(false, uint16(i), make([]byte, 100-i/2))
		b[37] = 0xb8
		frames = append(frames, Frame{Data: b})
	}
	f, n := merged(frames, 1500)
	var out Batch
	if out.Split(f); n != 3 || len(out.Frames) != 3 {
		t.Fatalf("%d messages in a super-frame, %d split", n, len(out.Frames))
	}
	for i := range frames {
		if !bytes.Equal(out.Frames[i].Data, frames[i].Data) {
			t.Errorf("message %d: %x became %x", i, frames[i].Data, out.Frames[i].Data)
		}
	}
}

func TestRowIsBounded(t *testing.T) {
	var small, large []Frame
	for i := range 300 {
		small = append(small, Frame{Data: rocePacket(false, uint16(i), make([]byte, 20))})
		large = append(large, Frame{Data: rocePacket(false, uint16(i), make([]byte, 4112))})
	}
	if run := FirstRun(small, 1500); run.Frames != maxSegments {
		t.Errorf("%d small frames in a run", run.Frames)
	}
	run := FirstRun(large, 9000)
	if want := (maxDatagram - ipv4Len - udpLen) / 4112; run.Frames != want {
		t.Errorf("%d large frames in a run, want %d", run.Frames, want)
	}
	short := append(large[:3:3], Frame{Data: rocePacket(false, 3, make([]byte, 40))}, Frame{Data: rocePacket(false, 4, make([]byte, 40))})
	if run := FirstRun(short, 9000); run.Frames != 4 {
		t.Errorf("%d frames in a run with a short one, want 4: it must be the last", run.Frames)
	}
}

func FuzzFirstRun(f *testing.F) {
	f.Add(rocePacket(false, 1, make([]byte, 30)), rocePacket(false, 2, make([]byte, 30)))
	f.Add(rocePacket(true, 1, make([]byte, 30)), rocePacket(true, 2, make([]byte, 20)))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var out Batch
		frames := []Frame{{Data: a}, {Data: b}}
		g, n := merged(frames, 9000)
		if n == 1 {
			return
		}
		out.Split(g)
		if len(out.Frames) != 2 || !bytes.Equal(out.Frames[0].Data, a) || !bytes.Equal(out.Frames[1].Data, b) {
			t.Errorf("%x and %x came apart as %v", a, b, out.Frames)
		}
	})
}

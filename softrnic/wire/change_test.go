package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// icrcShift is what as many bytes of zero do to the CRC register.
func TestICRCShift(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < 4<<icrcShiftBits; n += 4 {
		if n > 600 && n%4096 > 8 && r.IntN(100) > 0 {
			continue
		}
		crc := r.Uint32()
		if got, want := icrcShift(crc, n), icrcRest(crc, make([]byte, n)); got != want {
			t.Fatalf("%#x over %d bytes: %#x, want %#x", crc, n, got, want)
		}
	}
}

// randomFrame draws headers and opcode; it has n bytes of payload if its opcode has any.
func randomFrame(r *rand.Rand, n int) *Frame {
	var ops []Opcode
	for op := range 256 {
		if Opcode(op).Info().Flags&OpPayload != 0 {
			ops = append(ops, Opcode(op))
		}
	}
	f := testFrame(ops[r.IntN(len(ops))], r.IntN(2) == 0, r.IntN(2) == 0, n)
	change(r, f)
	return f
}

// change draws the fields that a switch may change.
func change(r *rand.Rand, f *Frame) {
	f.BTH.PSN, f.BTH.DestQP, f.BTH.AckReq = PSN(r.Uint32()&0xffffff), QPN(r.Uint32()&0xffffff), r.IntN(2) == 0
	f.IPv4.ID, f.IPv4.TOS, f.IPv6.TrafficClass = uint16(r.Uint32()), uint8(r.Uint32()), uint8(r.Uint32())
	binary.BigEndian.PutUint32(f.IPv4.Dst[:], r.Uint32())
	binary.BigEndian.PutUint64(f.IPv6.Src[8:], r.Uint64())
	f.UDP.SrcPort = uint16(r.Uint32())
	f.RETH.VA, f.RETH.RKey, f.AETH.MSN = r.Uint64(), r.Uint32(), r.Uint32()&0xffffff
}

// A packet whose headers change, also into headers of another length or of the other IP, has the
// ICRC that AppendTo computes (IBTA 7.8.1).
func TestAppendChanged(t *testing.T) {
	var s Sealer
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 4000 {
		n := r.IntN(3 * changeMin)
		if i%50 == 0 {
			n = 4096 + r.IntN(60000)
		}
		old := randomFrame(r, n).AppendTo([]byte("before"))[6:]
		var f Frame
		if err := ParseFrame(old, &f); err != nil {
			t.Fatal(err)
		}
		if r.IntN(4) == 0 {
			f.BTH.Opcode = randomFrame(r, 0).BTH.Opcode
		}
		f.V6 = f.V6 != (r.IntN(4) == 0)
		change(r, &f)
		before := bytes.Clone(old)
		got := s.AppendChanged([]byte("in front"), &f, old)
		if want := f.AppendTo([]byte("in front")); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of payload: %x, want %x", n, got, want)
		}
		if !bytes.Equal(old, before) {
			t.Fatal("the received packet was changed")
		}
	}
}

// A received packet that is damaged somewhere behind its headers stays damaged: the ICRC of the
// changed packet is wrong by as much.
func TestAppendChangedKeepsDamage(t *testing.T) {
	var s Sealer
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		old := randomFrame(r, changeMin+r.IntN(4096)).AppendTo(nil)
		var f Frame
		if err := ParseFrame(old, &f); err != nil {
			t.Fatal(err)
		}
		old[len(old)-1-r.IntN(len(f.Payload))] ^= 1 << r.IntN(8)
		change(r, &f)
		damagedPad := false // zeros are written in its place, and the ICRC is a new one
		for _, x := range old[len(old)-icrcLen-padOf(len(f.Payload)) : len(old)-icrcLen] {
			damagedPad = damagedPad || x != 0
		}
		if CheckICRC(s.AppendChanged(nil, &f, old)) != damagedPad {
			t.Fatalf("%v: a damaged packet of %d bytes got a right ICRC", f.BTH.Opcode, len(old))
		}
	}
}

// A payload in other memory, a part of the payload and a payload of a packet with a pad that is not
// zero are summed.
func TestAppendChangedSums(t *testing.T) {
	var s Sealer
	old := testFrame(RCWriteOnly, false, false, 1001).AppendTo(nil)
	var f Frame
	if err := ParseFrame(old, &f); err != nil {
		t.Fatal(err)
	}
	payload := f.Payload
	old[len(old)-icrcLen-1] = 7
	putICRC(old)
	other := bytes.Clone(payload)
	other[3]++
	for name, p := range map[string][]byte{"pad": payload, "copy": other, "start": payload[:900], "end": payload[101:], "none": nil} {
		f.Payload = p
		if got, want := s.AppendChanged(nil, &f, old), f.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
	f.Payload = payload
	for n := range old { // what is no packet is no reason to panic
		s.AppendChanged(nil, &f, old[:n])
	}
}

// FuzzAppendChanged: whatever two packets are, AppendChanged is AppendTo if the first one's ICRC is
// right.
func FuzzAppendChanged(f *testing.F) {
	f.Add(testFrame(RCWriteMiddle, false, true, 1024).AppendTo(nil), testFrame(RCWriteFirst, true, false, 0).AppendTo(nil))
	f.Add(testFrame(RCReadResponseMiddle, true, true, 4096).AppendTo(nil), testFrame(RCReadResponseLast, false, false, 0).AppendTo(nil))
	f.Fuzz(func(t *testing.T, old, headers []byte) {
		var s Sealer
		var was, now Frame
		_ = ParseFrame(headers, &now) // what was read before an error is as good
		if ParseFrame(old, &was) != nil || !putICRC(old) {
			return
		}
		now.Payload = was.Payload
		if got, want := s.AppendChanged(nil, &now, old), now.AppendTo(nil); !bytes.Equal(got, want) {
			t.Fatalf("%x and headers of %x: %x, want %x", old, headers, got, want)
		}
	})
}

// BenchmarkChange measures what a switch does that changes the headers of a packet.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{256, 512, 1024, 4096} {
		old := testFrame(RCWriteMiddle, false, false, n).AppendTo(nil)
		var f Frame
		if err := ParseFrame(old, &f); err != nil {
			b.Fatal(err)
		}
		f.BTH.PSN++
		var s Sealer
		buf := make([]byte, 0, 8192)
		for name, step := range map[string]func(){
			"sum":    func() { buf = s.AppendFrame(buf[:0], &f) },
			"change": func() { buf = s.AppendChanged(buf[:0], &f, old) },
		} {
			b.Run(fmt.Sprintf("%dB/%s", n, name), func(b *testing.B) {
				b.SetBytes(int64(len(old)))
				b.ReportAllocs()
				for b.Loop() {
					step()
				}
			})
		}
	}
}

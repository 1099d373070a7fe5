package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
)

// v1Frames are RoCEv1 frames. Their bytes were written by a program of its own in another language, with the
// CRC of zlib over eight bytes of ones and the packet with its masked fields; tshark 4 reads their fields
// like this (TestTsharkReadsPausesAndMarks).
var v1Frames = []struct {
	op    Opcode
	want  string
	grh   func(h *IPv6)
	extra int // bytes of headers behind the BTH
}{
	{
		RCWriteOnly, "0272000000010272000000028915628abcde00281b40fe800000000000000072fffe00000002fe800000000000000072fffe000000010a70ffff0000012380abcdef" +
			"00007f0000001000000012340000000568656c6c6f0000000691f1bb", func(h *IPv6) { h.TrafficClass, h.FlowLabel, h.HopLimit = 0x28, 0xabcde, 64 }, 16,
	},
	{
		RCReadRequest, "02720000000102720000000289156000000000201b01fe800000000000000072fffe00000002fe800000000000000072fffe000000010c40ffff0000012380abcdef" +
			"00007f000000100000001234000005dcf3023a13", nil, 16,
	},
	{
		RCFetchAdd, "027200000001027200000002891560000000002c1b01fe800000000000000072fffe00000002fe800000000000000072fffe000000011440ffff0000012380abcdef" +
			"00007f0000001000000012340000000000000003000000000000000021637d32", nil, 28,
	},
}

// v1Of returns a frame of v1Frames as fields.
func v1Of(t *testing.T, i int) (f FrameV1, b []byte) {
	t.Helper()
	c := &v1Frames[i]
	b, err := hex.DecodeString(c.want)
	if err != nil {
		t.Fatal(err)
	}
	gid := func(last byte) [16]byte { return [16]byte{0xfe, 0x80, 8: 0, 9: 0x72, 10: 0xff, 11: 0xfe, 15: last} }
	f = FrameV1{
		Eth: Ethernet{Dst: MAC{2, 0x72, 0, 0, 0, 1}, Src: MAC{2, 0x72, 0, 0, 0, 2}, Type: EtherTypeRoCEv1}, GRH: IPv6{NextHeader: nextHeaderIB, HopLimit: 1, Src: gid(2), Dst: gid(1)},
	}
	f.BTH = BTH{Opcode: c.op, MigReq: true, PKey: 0xffff, DestQP: 0x123, AckReq: true, PSN: 0xabcdef}
	switch c.op {
	case RCWriteOnly:
		f.RETH, f.Payload, f.BTH.Pad = RETH{VA: 0x7f00_0000_1000, RKey: 0x1234, Length: 5}, []byte("hello"), 3
	case RCReadRequest:
		f.RETH = RETH{VA: 0x7f00_0000_1000, RKey: 0x1234, Length: 1500}
	default:
		f.AtomicETH = AtomicETH{VA: 0x7f00_0000_1000, RKey: 0x1234, SwapOrAdd: 3}
	}
	if c.grh != nil {
		c.grh(&f.GRH)
	}
	return f, b
}

// The bytes of RoCEv1, and how many of them are headers: the paper of external memory counts 52 for routing
// and transport, 40 with RoCEv2, and 16 or 28 for the operation.
func TestRoCEv1Bytes(t *testing.T) {
	for i, c := range v1Frames {
		f, want := v1Of(t, i)
		got := f.AppendTo([]byte("before"))[6:]
		if !bytes.Equal(got, want) || f.Len() != len(want) {
			t.Errorf("%v:\n%x, want\n%x", c.op, got, want)
		}
		var back FrameV1
		ok, err := ParseFrameV1(append(bytes.Clone(want), 0, 0, 0), &back)
		f.ICRC, f.GRH.PayloadLen = back.ICRC, back.GRH.PayloadLen
		if len(back.Payload) == 0 {
			back.Payload = nil
		}
		if err != nil || !ok || !reflect.DeepEqual(f, back) {
			t.Errorf("%v: %v, %v\n%+v, want\n%+v", c.op, ok, err, back, f)
		}
		v2 := Frame{Packet: f.Packet}
		rest := f.Eth.Len() + icrcLen + len(f.Payload) + int(f.BTH.Pad)
		if v1, v2 := f.Len()-rest-c.extra, v2.Len()-rest-c.extra; v1 != 52 || v2 != 40 {
			t.Errorf("%v: %d bytes of routing and transport, RoCEv2 has %d", c.op, v1, v2)
		}
		// The ICRC covers all but what routers change: the flow label and the hop limit, and byte 4 of the
		// BTH. The first byte, length and next header make another frame.
		for at := 15; at < len(want)-icrcLen; at++ {
			if at >= 18 && at < 21 {
				continue
			}
			b := bytes.Clone(want)
			b[at] ^= 1
			if ok, err := ParseFrameV1(b, &back); err == nil && ok != (at < 18 || at == 21 || at == 14+ipv6Len+4) {
				t.Errorf("%v: with another byte %d the ICRC is right: %v", c.op, at, ok)
			}
		}
	}
}

func TestRoCEv1Refuses(t *testing.T) {
	_, good := v1Of(t, 0)
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"nothing":             {func([]byte) []byte { return nil }, ErrNotRoCE},
		"another EtherType":   {func(b []byte) []byte { b[13]++; return b }, ErrNotRoCE},
		"another next header": {func(b []byte) []byte { b[20] = 17; return b }, ErrNotRoCE},
		"another version":     {func(b []byte) []byte { b[14] = 0x45; return b }, ErrVersion},
		"a short GRH":         {func(b []byte) []byte { return b[:50] }, ErrTruncated},
		"a short packet":      {func(b []byte) []byte { return b[:len(b)-1] }, ErrLength},
		"no BTH":              {func(b []byte) []byte { b[18], b[19] = 0, 10; return b }, ErrTruncated},
	} {
		var f FrameV1
		if _, err := ParseFrameV1(c.change(bytes.Clone(good)), &f); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzFrameV1(f *testing.F) {
	for _, c := range v1Frames {
		b, _ := hex.DecodeString(c.want)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var x FrameV1
		if ok, err := ParseFrameV1(b, &x); err == nil && ok && x.Len() > len(b) {
			t.Errorf("%d bytes of %d", x.Len(), len(b))
		}
	})
}

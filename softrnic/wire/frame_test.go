package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// testFrame returns a frame of the opcode with n bytes of payload and a value in every field that
// it has.
func testFrame(op Opcode, v6, tagged bool, n int) *Frame {
	f := &Frame{
		Eth:  Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2}, Src: MAC{2, 0, 0, 0, 0, 1}, Tagged: tagged, Type: EtherTypeIPv4},
		V6:   v6,
		IPv4: IPv4{TOS: 0x6a, ID: 0x1045, DF: true, TTL: 64, Protocol: ProtocolUDP, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		UDP:  UDP{SrcPort: 0xd221, DstPort: UDPPort},
	}
	if tagged {
		f.Eth.TCI = 0x6005
	}
	if v6 {
		f.Eth.Type, f.IPv4 = EtherTypeIPv6, IPv4{}
		f.IPv6 = IPv6{FlowLabel: 0x12345, NextHeader: ProtocolUDP, HopLimit: 64, Src: [16]byte{0xfd, 15: 1}, Dst: [16]byte{0xfd, 15: 2}}
	}
	p := &f.Packet
	p.BTH = BTH{Opcode: op, PKey: DefaultPKey, DestQP: 0x111, PSN: 0x000100, AckReq: true}
	if op.Has(HasXRCETH) {
		p.XRCETH = XRCETH{SRQN: 0x21}
	}
	if op.Has(HasFETH) {
		p.FETH = FETH{Level: FlushRegion, Placement: FlushGlobal | FlushPersistent}
	}
	if op.Has(HasRETH) {
		p.RETH = RETH{VA: 0x7f0012345678, RKey: 0xb6c0, Length: uint32(n)}
	}
	if op.Has(HasAtomicETH) {
		p.AtomicETH = AtomicETH{VA: 0x1000, RKey: 5, SwapOrAdd: 1, Compare: 2}
	}
	if op.Has(HasAtomicMasks) {
		p.Masks = AtomicMasks{Swap: 0xf0, CompareOrBoundary: 1 << 63}
	}
	if op.Has(HasAETH) {
		p.AETH = AETH{Syndrome: AckNoCredits, MSN: 7}
	}
	if op.Has(HasAtomicAckETH) {
		p.AtomicAck = 0xfedcba9876543210
	}
	if op.Has(HasImmDt) {
		p.ImmDt = 0xc0b0a0
	}
	if op.Has(HasIETH) {
		p.IETH = 0x12345678
	}
	if op.Has(HasDETH) {
		p.DETH = DETH{QKey: 0x11111111, SrcQP: 0x14}
	}
	if op.Is(OpPayload) && n > 0 {
		p.Payload = make([]byte, n)
		for i := range p.Payload {
			p.Payload[i] = byte(i ^ i>>8)
		}
	}
	return f
}

// ignoreComputed leaves out what AppendTo computes and ParseFrame reports.
var ignoreComputed = cmp.Options{
	cmpopts.IgnoreFields(Frame{}, "ICRC"),
	cmpopts.IgnoreFields(BTH{}, "Pad"),
	cmpopts.IgnoreFields(IPv4{}, "TotalLen"),
	cmpopts.IgnoreFields(IPv6{}, "PayloadLen"),
	cmpopts.IgnoreFields(UDP{}, "Length"),
}

// Frames of every opcode, known or not, are the same after AppendTo and ParseFrame, with every pad,
// on every kind of network.
func TestFrameEveryOpcode(t *testing.T) {
	for op := range 256 {
		for n := range 5 {
			for kind := range 4 {
				if !Opcode(op).Known() && n != kind {
					continue // unknown opcodes are all handled alike
				}
				want := testFrame(Opcode(op), kind&1 != 0, kind&2 != 0, n)
				b := want.AppendTo(nil)
				var got Frame
				if err := ParseFrame(b, &got); err != nil {
					t.Fatalf("%v: %v", want, err)
				}
				if d := cmp.Diff(want, &got, ignoreComputed); d != "" {
					t.Errorf("%v: -want +got\n%s", want, d)
				}
				if !CheckICRC(b) || len(b) != want.Len() || len(b) != got.Len() {
					t.Errorf("%v: ICRC %t, %d bytes, Len() %d and %d", want, CheckICRC(b), len(b), want.Len(), got.Len())
				}
			}
		}
	}
}

// AppendTo appends to a slice, and uses the slice's capacity.
func TestFrameAppend(t *testing.T) {
	f := testFrame(RCSendOnly, false, false, 5)
	room := make([]byte, 3, 4096)
	b := f.AppendTo(room)
	if &b[0] != &room[0] || !bytes.Equal(b[3:], f.AppendTo(nil)) || len(b) != 3+f.Len() {
		t.Errorf("%d bytes %x", len(b), b)
	}
}

// Computed fields do not depend on the values in the Frame.
func TestFrameComputes(t *testing.T) {
	want := testFrame(RCSendOnly, false, false, 5).AppendTo(nil)
	f := testFrame(RCSendOnly, false, false, 5)
	f.Eth.Type, f.IPv4.Protocol, f.UDP.DstPort = 0, 0, 0
	f.IPv4.TotalLen, f.UDP.Length, f.BTH.Pad, f.ICRC = 1, 2, 1, 4
	f.RETH.RKey, f.AETH.MSN, f.ImmDt = 5, 6, 7 // headers that the opcode does not have
	if got := f.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	ack := testFrame(RCAck, false, false, 0)
	want = ack.AppendTo(nil)
	ack.Payload = []byte("an ACK has none")
	if got := ack.AppendTo(nil); !bytes.Equal(got, want) || ack.Len() != len(want) {
		t.Errorf("ACK with payload: %x, want %x", got, want)
	}
}

// A short frame is received with Ethernet padding (IEEE 802.3: 60 bytes at least), which is not
// part of the datagram.
func TestFrameEthernetPadding(t *testing.T) {
	b := testFrame(RCSendOnly, false, false, 0).AppendTo(nil)
	if len(b) != 58 {
		t.Fatalf("a SEND of nothing has %d bytes", len(b))
	}
	padded := append(b[:len(b):len(b)], 0xaa, 0xbb)
	var f Frame
	if err := ParseFrame(padded, &f); err != nil || len(f.Payload) != 0 || !CheckICRC(padded) {
		t.Errorf("padded frame: %v, %v, ICRC %t", err, &f, CheckICRC(padded))
	}
	if !bytes.Equal(f.AppendTo(nil), b) {
		t.Error("padding came back")
	}
}

// A kernel that leaves checksums to hardware sends a partial UDP checksum, also over IPv6.
func TestFramePartialChecksum(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		f := testFrame(RCSendOnly, v6, false, 64)
		f.UDP.Checksum = 0x1a2b
		b := f.AppendTo(nil)
		var got Frame
		if err := ParseFrame(b, &got); err != nil || got.UDP.Checksum != 0x1a2b || !CheckICRC(b) {
			t.Errorf("v6 %t: %v, checksum %#x, ICRC %t", v6, err, got.UDP.Checksum, CheckICRC(b))
		}
	}
}

// Offsets into a frame without a tag.
const (
	atIPv4 = 14
	atUDP4 = atIPv4 + 20
	atBTH4 = atUDP4 + 8
	atUDP6 = atIPv4 + 40
)

// fixIPv4 computes the header checksum again.
func fixIPv4(b []byte) {
	b[atIPv4+10], b[atIPv4+11] = 0, 0
	binary.BigEndian.PutUint16(b[atIPv4+10:], checksum(b[atIPv4:atUDP4]))
}

func TestFrameErrors(t *testing.T) {
	set16 := func(at int, v uint16) func(b []byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint16(b[at:], v)
			fixIPv4(b)
			return b
		}
	}
	v4 := testFrame(RCWriteOnlyImm, false, false, 5) // 14+20+8+12+16+4+5+3+4 = 86 bytes
	v6 := testFrame(RCWriteOnlyImm, true, false, 5)
	for _, tc := range []struct {
		name   string
		frame  *Frame
		change func(b []byte) []byte
		want   error
		header string
	}{
		{"IPv4 version", v4, func(b []byte) []byte { b[atIPv4] = 0x65; return b }, ErrVersion, "IPv4"},
		{"IPv4 checksum", v4, func(b []byte) []byte { b[atIPv4+8]++; return b }, ErrChecksum, "IPv4"},
		{"IPv4 first fragment", v4, set16(atIPv4+6, 0x2000), ErrFragment, "IPv4"},
		{"IPv4 longer than the frame", v4, set16(atIPv4+2, 73), ErrLength, "IPv4"},
		{"IPv4 length below its header", v4, set16(atIPv4+2, 19), ErrLength, "IPv4"},
		{"IPv4 length cuts UDP header", v4, set16(atIPv4+2, 27), ErrTruncated, "UDP"},
		{"IPv4 shorter than UDP", v4, set16(atIPv4+2, 68), ErrLength, "UDP"},
		{"UDP shorter than IPv4", v4, set16(atUDP4+4, 48), ErrLength, "UDP"},
		{"UDP length 0", v4, set16(atUDP4+4, 0), ErrLength, "UDP"},
		{"cut frame", v4, func(b []byte) []byte { return b[:len(b)-1] }, ErrLength, "IPv4"},
		{"IPv6 version", v6, func(b []byte) []byte { b[atIPv4] = 0x45; return b }, ErrVersion, "IPv6"},
		{"IPv6 longer than the frame", v6, set16NoFix(atIPv4+4, 53), ErrLength, "IPv6"},
		{"IPv6 shorter than UDP", v6, set16NoFix(atIPv4+4, 48), ErrLength, "UDP"},
		{"IPv6 UDP length 0", v6, set16NoFix(atUDP6+4, 0), ErrLength, "UDP"},
		{"length not of 4", v4, resize(45), ErrAlign, "packet"},
		{"options", v4, withOptions, ErrOptions, "IPv4"},
		{"no room for BTH", v4, resize(15), ErrTruncated, "BTH"},
		{"no room for RETH", v4, resize(31), ErrTruncated, "RETH"},
		{"no room for ImmDt", v4, resize(35), ErrTruncated, "ImmDt"},
		{"pad longer than payload", v4, resize(36), ErrPad, "BTH"},
		{"payload on an ACK", testFrame(RCSendFirst, false, false, 8), func(b []byte) []byte { b[atBTH4] = byte(RCAck); return b }, ErrPayload, "RC_ACK"},
		{"payload on a CNP", testFrame(RCSendFirst, false, false, 20), func(b []byte) []byte { b[atBTH4] = byte(CNP); return b }, ErrPayload, "CNP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.change(tc.frame.AppendTo(nil))
			var f Frame
			err := ParseFrame(b, &f)
			var e *FormatError
			if !errors.Is(err, tc.want) || !errors.As(err, &e) || e.Header != tc.header {
				t.Errorf("%v, want %v of %s", err, tc.want, tc.header)
			}
			CheckICRC(b) // any length is accepted
		})
	}
}

func set16NoFix(at int, v uint16) func(b []byte) []byte {
	return func(b []byte) []byte {
		binary.BigEndian.PutUint16(b[at:], v)
		return b
	}
}

// withOptions puts four bytes of options into an IPv4 header.
func withOptions(b []byte) []byte {
	b = append(b[:atUDP4:atUDP4], append([]byte{1, 1, 1, 0}, b[atUDP4:]...)...)
	b[atIPv4] = 0x46
	return b
}

// resize shortens or extends the UDP payload to n bytes, and sets the lengths.
func resize(n int) func(b []byte) []byte {
	return func(b []byte) []byte {
		b = append(b, make([]byte, 64)...)[:atBTH4+n]
		binary.BigEndian.PutUint16(b[atIPv4+2:], uint16(20+8+n))
		binary.BigEndian.PutUint16(b[atUDP4+4:], uint16(8+n))
		fixIPv4(b)
		return b
	}
}

// A frame without a UDP datagram to port 4791 is ErrNotRoCE, not a malformed packet.
func TestFrameNotRoCE(t *testing.T) {
	good := testFrame(RCSendOnly, false, false, 64).AppendTo(nil)
	good6 := testFrame(RCSendOnly, true, false, 64).AppendTo(nil)
	change := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":           nil,
		"Ethernet only":     good[:14],
		"tag only":          change(good, 12, 0x81, 0x00)[:18],
		"IPv4 cut":          good[:33],
		"IPv4 only":         good[:34],
		"no UDP port":       good[:37],
		"IPv6 cut":          good6[:53],
		"ARP":               change(good, 12, 0x08, 0x06),
		"two tags":          change(good, 12, 0x81, 0x00, 0, 0, 0x81, 0x00),
		"TCP":               change(good, atIPv4+9, 6),
		"ICMPv6":            change(good6, atIPv4+6, 58),
		"port 4790":         change(good, atUDP4+3, 0xb6),
		"from port 4791":    change(good, atUDP4, 0x12, 0xb7, 0x12, 0xb6),
		"IPv4 2nd fragment": change(good, atIPv4+6, 0x00, 0x01),
	} {
		var f Frame
		if err := ParseFrame(b, &f); !errors.Is(err, ErrNotRoCE) {
			t.Errorf("%s: %v", name, err)
		}
		if CheckICRC(b) || putICRC(b) {
			t.Errorf("%s has an ICRC", name)
		}
	}
}

func TestFrameString(t *testing.T) {
	for _, tc := range []struct {
		frame *Frame
		want  string
	}{
		{testFrame(RCWriteOnly, false, false, 5), "10.0.0.1 > 10.0.0.2 RC_WRITE_ONLY qp=0x111 psn=0x000100 va=0x7f0012345678 rkey=0xb6c0 len=5 payload=5 ackreq"},
		{testFrame(RCAtomicAck, true, false, 0), "fd00::1 > fd00::2 RC_ATOMIC_ACK qp=0x111 psn=0x000100 ACK msn=7 orig=0xfedcba9876543210 ackreq"},
		{testFrame(RCCmpSwap, false, false, 0), "10.0.0.1 > 10.0.0.2 RC_CMP_SWAP qp=0x111 psn=0x000100 va=0x1000 rkey=0x5 compare=0x2 swap=0x1 ackreq"},
		{testFrame(RCFetchAdd, false, false, 0), "10.0.0.1 > 10.0.0.2 RC_FETCH_ADD qp=0x111 psn=0x000100 va=0x1000 rkey=0x5 add=0x1 ackreq"},
		{testFrame(RCMaskedCmpSwap, false, false, 0), "10.0.0.1 > 10.0.0.2 RC_MASKED_CMP_SWAP qp=0x111 psn=0x000100 va=0x1000 rkey=0x5 compare=0x2 swap=0x1 cmask=0x8000000000000000 smask=0xf0 ackreq"},
		{testFrame(RCMaskedFetchAdd, false, false, 0), "10.0.0.1 > 10.0.0.2 RC_MASKED_FETCH_ADD qp=0x111 psn=0x000100 va=0x1000 rkey=0x5 add=0x1 boundary=0x8000000000000000 ackreq"},
		{testFrame(UDSendOnlyImm, false, false, 4), "10.0.0.1 > 10.0.0.2 UD_SEND_ONLY_IMM qp=0x111 psn=0x000100 qkey=0x11111111 srcqp=0x14 imm=0xc0b0a0 payload=4 ackreq"},
		{testFrame(RCSendOnlyInv, false, false, 4), "10.0.0.1 > 10.0.0.2 RC_SEND_ONLY_INV qp=0x111 psn=0x000100 inv=0x12345678 payload=4 ackreq"},
	} {
		if got := tc.frame.String(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	cnp := Packet{BTH: BTH{Opcode: CNP, FECN: true, BECN: true, Solicited: true, MigReq: true}}
	if got, want := cnp.String(), "CNP qp=0x0 psn=0x000000 solicited migreq fecn becn"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// putICRC writes the correct ICRC into frame. If frame is not RoCEv2 it does nothing and returns
// false.
func putICRC(frame []byte) bool {
	covered, sum, v6, ok := icrcSpan(frame)
	if ok {
		binary.LittleEndian.PutUint32(sum, icrc(covered, v6))
	}
	return ok
}

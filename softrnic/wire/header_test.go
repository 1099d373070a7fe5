package wire

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// header has the method that every header of the package has, except those with a length field.
type header interface {
	Parse(b []byte) error
}

// unhex reads hex digits in groups.
func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func ptr[T any](v T) *T { return &v }

// fill sets all bits of v.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetUint(1<<v.Type().Bits() - 1)
	}
}

// Each header (IBTA 9.2 and IBTA 9.3) parses from literal bytes and is encoded to the same bytes.
// Parsing a truncated header returns an error, at every length.
func TestHeaders(t *testing.T) {
	for _, tc := range []struct {
		name, bytes string
		got         header // zero, parsed into
		want        header
		write       func(h header) []byte
	}{
		{
			"Ethernet", "020000000002 020000000001 0800", new(Ethernet),
			&Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2}, Src: MAC{2, 0, 0, 0, 0, 1}, Type: EtherTypeIPv4},
			func(h header) []byte { return h.(*Ethernet).AppendTo(nil) },
		},
		{
			"802.1Q", "020000000002 020000000001 8100 6005 86dd", new(Ethernet),
			&Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2}, Src: MAC{2, 0, 0, 0, 0, 1}, Tagged: true, TCI: 0x6005, Type: EtherTypeIPv6},
			func(h header) []byte { return h.(*Ethernet).AppendTo(nil) },
		},
		{
			"BTH", "0a d2 8001 40 000111 80 fffffe", new(BTH),
			&BTH{Opcode: RCWriteOnly, Solicited: true, MigReq: true, Pad: 1, Version: 2, PKey: 0x8001, BECN: true, DestQP: 0x111, AckReq: true, PSN: 0xfffffe},
			func(h header) []byte { return h.(*BTH).AppendTo(nil) },
		},
		{
			"BTH reserved bits", "11 00 ffff bf 000011 7f 000001", new(BTH),
			&BTH{Opcode: RCAck, PKey: 0xffff, FECN: true, Reserved6: 0x3f, DestQP: 0x11, Reserved7: 0x7f, PSN: 1},
			func(h header) []byte { return h.(*BTH).AppendTo(nil) },
		},
		{
			"XRCETH", "00 000021", new(XRCETH), &XRCETH{SRQN: 0x21},
			func(h header) []byte { return h.(*XRCETH).AppendTo(nil) },
		},
		{
			"XRCETH reserved bits", "ff fffffe", new(XRCETH), &XRCETH{Reserved: 0xff, SRQN: MaxSRQN - 1},
			func(h header) []byte { return h.(*XRCETH).AppendTo(nil) },
		},
		{
			"FETH", "00000013", new(FETH), &FETH{Level: FlushRegion, Placement: FlushGlobal | FlushPersistent},
			func(h header) []byte { return h.(*FETH).AppendTo(nil) },
		},
		{
			"FETH reserved bits", "ffffffec", new(FETH), &FETH{Reserved: 1<<26 - 1, Level: 2, Placement: 12},
			func(h header) []byte { return h.(*FETH).AppendTo(nil) },
		},
		{
			"RETH", "00007f0012345678 0000b6c0 00000bb9", new(RETH),
			&RETH{VA: 0x7f0012345678, RKey: 0xb6c0, Length: 3001},
			func(h header) []byte { return h.(*RETH).AppendTo(nil) },
		},
		{
			"AtomicETH", "0000000000001000 00000005 0102030405060708 1112131415161718", new(AtomicETH),
			&AtomicETH{VA: 0x1000, RKey: 5, SwapOrAdd: 0x0102030405060708, Compare: 0x1112131415161718},
			func(h header) []byte { return h.(*AtomicETH).AppendTo(nil) },
		},
		{
			"AtomicMasks", "00000000000000ff 8000000080000000", new(AtomicMasks), &AtomicMasks{Swap: 0xff, CompareOrBoundary: 0x8000000080000000},
			func(h header) []byte { return h.(*AtomicMasks).AppendTo(nil) },
		},
		{
			"AETH", "60 000203", new(AETH), &AETH{Syndrome: NakPSNSequence, MSN: 0x203},
			func(h header) []byte { return h.(*AETH).AppendTo(nil) },
		},
		{
			"AtomicAckETH", "fedcba9876543210", new(AtomicAckETH), ptr(AtomicAckETH(0xfedcba9876543210)),
			func(h header) []byte { return h.(*AtomicAckETH).AppendTo(nil) },
		},
		{
			"ImmDt", "00c0b0a0", new(ImmDt), ptr(ImmDt(0xc0b0a0)),
			func(h header) []byte { return h.(*ImmDt).AppendTo(nil) },
		},
		{
			"IETH", "12345678", new(IETH), ptr(IETH(0x12345678)),
			func(h header) []byte { return h.(*IETH).AppendTo(nil) },
		},
		{
			"DETH", "80010000 00 000001", new(DETH), &DETH{QKey: 0x80010000, SrcQP: 1},
			func(h header) []byte { return h.(*DETH).AppendTo(nil) },
		},
		{
			"CNP", "00000000 00000000 00000000 00000000", new(CNPReserved), new(CNPReserved),
			func(h header) []byte { return h.(*CNPReserved).AppendTo(nil) },
		},
		{
			"IPv4", "45 6a 0030 1045 4000 40 11 0eba c0a84d01 c0a84d02", new(IPv4),
			&IPv4{TOS: 0x6a, TotalLen: 48, ID: 0x1045, DF: true, TTL: 64, Protocol: 17, Src: [4]byte{192, 168, 77, 1}, Dst: [4]byte{192, 168, 77, 2}},
			func(h header) []byte { return h.(*IPv4).AppendTo(nil, 28) },
		},
		{
			"IPv6", "66 a 12345 001c 11 40 fd770000000000000000000000000001 fd770000000000000000000000000002", new(IPv6),
			&IPv6{TrafficClass: 0x6a, FlowLabel: 0x12345, PayloadLen: 28, NextHeader: 17, HopLimit: 64, Src: [16]byte{0xfd, 0x77, 15: 1}, Dst: [16]byte{0xfd, 0x77, 15: 2}},
			func(h header) []byte { return h.(*IPv6).AppendTo(nil, 28) },
		},
		{
			"UDP", "d221 12b7 001c abcd", new(UDP), &UDP{SrcPort: 0xd221, DstPort: 4791, Length: 28, Checksum: 0xabcd},
			func(h header) []byte { return h.(*UDP).AppendTo(nil, 20) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := unhex(t, tc.bytes)
			whole := append(b[:len(b):len(b)], make([]byte, 28)...) // with more bytes after it
			if tc.name == "UDP" {
				whole = whole[:28]
			}
			if err := tc.got.Parse(whole); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, tc.got); d != "" {
				t.Errorf("Parse: -want +got\n%s", d)
			}
			fill(reflect.ValueOf(tc.got).Elem())
			if err := tc.got.Parse(whole); err != nil || !cmp.Equal(tc.want, tc.got) {
				t.Errorf("Parse into used memory: %v, -want +got\n%s", err, cmp.Diff(tc.want, tc.got))
			}
			if got := tc.write(tc.want); !cmp.Equal(got, b) {
				t.Errorf("AppendTo: %x, want %x", got, b)
			}
			if h, ok := tc.want.(interface{ Len() int }); ok && h.Len() != len(b) {
				t.Errorf("Len() = %d, want %d", h.Len(), len(b))
			}
			for n := range b {
				var e *FormatError
				if err := tc.got.Parse(b[:n]); !errors.As(err, &e) || !errors.Is(err, ErrTruncated) || e.Got != n {
					t.Errorf("cut to %d bytes: %v", n, err)
				}
			}
		})
	}
}

func TestMAC(t *testing.T) {
	for _, s := range []string{"02:00:5e:10:00:ff", "02-00-5E-10-00-FF"} {
		m, err := ParseMAC(s)
		if want := (MAC{2, 0, 0x5e, 0x10, 0, 0xff}); err != nil || m != want {
			t.Errorf("ParseMAC(%q) = %v, %v", s, m, err)
		}
		if got := m.String(); got != "02:00:5e:10:00:ff" {
			t.Errorf("String() = %q", got)
		}
	}
	for _, s := range []string{"", "02:00:5e:10:00", "02:00:5e:10:00:f", "02:00:5e:10:00:fg", "02 00 5e 10 00 ff", "0200:5e:10:00:ff:", "02:00:5e:10:00:ff:01"} {
		if m, err := ParseMAC(s); !errors.Is(err, ErrMAC) || m != (MAC{}) {
			t.Errorf("ParseMAC(%q) = %v, %v", s, m, err)
		}
	}
	m := MAC{1}
	if err := m.UnmarshalText([]byte("x")); err == nil || m != (MAC{1}) {
		t.Errorf("a bad text changed the address to %v: %v", m, err)
	}
	broadcast := MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	text, err := broadcast.MarshalText()
	if err != nil || m.UnmarshalText(text) != nil || m != broadcast || !m.IsMulticast() || (MAC{2}).IsMulticast() {
		t.Errorf("broadcast is %s, %v, %v", text, m, err)
	}
}

// A syndrome prints as its name and value (IBTA 9.7.5.1.2).
func TestSyndrome(t *testing.T) {
	for s, want := range map[Syndrome]string{
		AckNoCredits: "ACK", 5: "ACK credits=5", RNRNak | 18: "RNR_NAK timer=18", NakPSNSequence: "NAK_PSN_SEQ",
		NakInvalid: "NAK_INV_REQ", NakRemoteAccess: "NAK_REM_ACCESS", NakRemoteOp: "NAK_REM_OP",
		NakInvalidRD: "NAK_INV_RD", 0x65: "SYNDROME_0x65", SelectiveNak | 3: "NAK_SELECTIVE run=3", 0xc0: "SYNDROME_0xc0", 0x9f: "SYNDROME_0x9f",
	} {
		if got := s.String(); got != want {
			t.Errorf("Syndrome(%#x) = %q, want %q", uint8(s), got, want)
		}
	}
	for s := range 256 {
		s, kinds := Syndrome(s), 0
		for _, is := range []bool{s.IsAck(), s.IsRNR(), s.IsNak(), s.IsSelective()} {
			if is {
				kinds++
			}
		}
		if reserved := s&0x80 != 0; (kinds == 0) != reserved || kinds > 1 {
			t.Errorf("%v is of %d kinds", s, kinds)
		}
	}
}

func TestPSN(t *testing.T) {
	for _, tc := range []struct {
		a, b PSN
		want int32
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{0x7fffff, 0, 0x7fffff},
		{0x800000, 0, -0x800000},
		{0, 0x800000, -0x800000},
	} {
		if got := Diff(tc.a, tc.b); got != tc.want {
			t.Errorf("Diff(%#x, %#x) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := tc.b.Add(int(tc.want)); got != tc.a {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", tc.b, tc.want, got, tc.a)
		}
	}
	if got := PSN(0xffffff).Next(); got != 0 {
		t.Errorf("Next of the last PSN is %#x", got)
	}
}

// Digits of an address are those of hexadecimal numbers, and none of the characters beside them.
func TestHexDigits(t *testing.T) {
	const digits = "0123456789abcdefABCDEF"
	for c := range 256 {
		m, err := ParseMAC("0" + string([]byte{byte(c)}) + ":00:00:00:00:00")
		v, ok := m[0], err == nil
		i := strings.IndexByte(digits, byte(c))
		want := i
		if i > 15 {
			want = i - 6
		}
		if ok != (i >= 0) || ok && int(v) != want {
			t.Errorf("%q is %d, %v", byte(c), v, ok)
		}
	}
}

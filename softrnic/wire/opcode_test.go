package wire

import (
	"encoding/json"
	"errors"
	"math/bits"
	"strings"
	"testing"
)

// The table is consistent: names are unique and parse to their opcodes, and flags do not contradict
// each other.
func TestOpcodeTable(t *testing.T) {
	known := 0
	for i := range 256 {
		o := Opcode(i)
		got, err := ParseOpcode(o.String())
		if err != nil || got != o {
			t.Errorf("ParseOpcode(%v) = %v, %v", o, got, err)
		}
		if got, err := ParseOpcode(strings.ToLower(o.String())); err != nil || got != o {
			t.Errorf("ParseOpcode of %v in lower case = %v, %v", o, got, err)
		}
		info := o.Info()
		if !o.Known() {
			if info.Headers != 0 || info.Flags != OpPayload || info.HeaderLen != bthLen {
				t.Errorf("unknown %v has a row: %+v", o, info)
			}
			continue
		}
		known++
		if n := bits.OnesCount16(uint16(info.Flags & (OpFirst | OpMiddle | OpLast | OpOnly))); n != 1 {
			t.Errorf("%v has %d places in its message", o, n)
		}
		if n := bits.OnesCount16(uint16(info.Flags & (OpRequest | OpResponse | OpControl))); n != 1 {
			t.Errorf("%v is of %d directions", o, n)
		}
		if o.Is(OpImm) != o.Has(HasImmDt) || o.Is(OpInv) != o.Has(HasIETH) {
			t.Errorf("%v: flags and headers differ about immediate data or invalidation", o)
		}
		if o.Has(HasDETH) != (o.Service() == ServiceUD) {
			t.Errorf("%v: DETH outside of UD, or UD without one", o)
		}
	}
	// IBTA 9.2: 23 opcodes of RC, 12 of UC, 2 of UD; the memory placement extensions: FLUSH and
	// ATOMIC_WRITE; A17.9.3: CNP; A14: 23 of XRC. Masked atomics are 2 of the opcodes for manufacturers.
	if known != 23+12+2+2+1+2+23 {
		t.Errorf("%d opcodes are known", known)
	}
}

// The opcodes of manufacturers from 0xc0 to 0xdf belong to reliable connections, and no others do
// that are not below 0x20 (IBTA 9.2/manufacturer).
func TestOpcodeService(t *testing.T) {
	for i := range 256 {
		want := Opcode(i) & 0xe0
		if i >= 0xc0 && i <= 0xdf {
			want = ServiceRC
		}
		if got := Opcode(i).Service(); got != want {
			t.Errorf("service of %#x is %#x", i, got)
		}
	}
	if RCMaskedCmpSwap != 0xd3 || RCMaskedFetchAdd != 0xd4 {
		t.Errorf("masked atomics are %#x and %#x", uint8(RCMaskedCmpSwap), uint8(RCMaskedFetchAdd))
	}
}

// UC is RC without READs, atomics, invalidation and acknowledgements.
func TestOpcodeUCIsLikeRC(t *testing.T) {
	for op := RCSendFirst; op <= RCWriteOnlyImm; op++ {
		rc, uc := op.Info(), (op | ServiceUC).Info()
		if rc.Headers != uc.Headers || rc.Flags != uc.Flags || strings.TrimPrefix(rc.Name, "RC") != strings.TrimPrefix(uc.Name, "UC") {
			t.Errorf("%v: %+v, %v: %+v", op, rc, op|ServiceUC, uc)
		}
	}
}

// XRC has the operations of RC, and an XRCETH in every request (annex A14).
func TestOpcodeXRCIsLikeRC(t *testing.T) {
	for op := RCSendFirst; op < ServiceUC; op++ {
		rc, xrc := op.Info(), (op | ServiceXRC).Info()
		if op > RCSendOnlyInv || !op.Known() {
			if xrc.Name != "" {
				t.Errorf("XRC has %v", op|ServiceXRC)
			}
			continue
		}
		want := *rc
		want.Name = "X" + rc.Name
		if rc.Flags&OpRequest != 0 {
			want.Headers, want.HeaderLen = rc.Headers|HasXRCETH, rc.HeaderLen+4
		}
		if *xrc != want {
			t.Errorf("%v: %+v, want %+v", op, xrc, want)
		}
		if x := op | ServiceXRC; x.Plain() != op || !x.Reliable() || x.Service() != ServiceXRC {
			t.Errorf("%v is of %#x, plain %v", x, uint8(x.Service()), x.Plain())
		}
	}
	if RCMaskedCmpSwap.Plain() != RCMaskedCmpSwap || UCSendOnly.Plain() != UCSendOnly || UCSendOnly.Reliable() {
		t.Error("Plain or Reliable changes or takes others than XRC")
	}
}

func TestOpcodeText(t *testing.T) {
	text, err := json.Marshal([]Opcode{RCWriteLast, UDSendOnlyImm, CNP, 0x15})
	if want := `["RC_WRITE_LAST","UD_SEND_ONLY_IMM","CNP","OPCODE_0x15"]`; err != nil || string(text) != want {
		t.Errorf("JSON %s, %v, want %s", text, err, want)
	}
	var back []Opcode
	if err := json.Unmarshal(text, &back); err != nil || back[0] != RCWriteLast || back[3] != 0x15 {
		t.Errorf("read back %v, %v", back, err)
	}
	for _, s := range []string{"", "RC_WRITE", "OPCODE_0x", "OPCODE_0x100", "OPCODE_0xzz", "17"} {
		if o, err := ParseOpcode(s); !errors.Is(err, ErrOpcode) {
			t.Errorf("ParseOpcode(%q) = %v, %v", s, o, err)
		}
	}
	o := RCAck
	if err := o.UnmarshalText([]byte("nonsense")); err == nil || o != RCAck {
		t.Errorf("a bad text changed the opcode to %v: %v", o, err)
	}
}

// FuzzOpcodeText: an opcode that parses prints as the same text, except for case and leading zeros.
func FuzzOpcodeText(f *testing.F) {
	f.Add("RC_WRITE_LAST")
	f.Add("opcode_0x15")
	f.Fuzz(func(t *testing.T, s string) {
		o, err := ParseOpcode(s)
		if err != nil {
			return
		}
		if again, err := ParseOpcode(o.String()); err != nil || again != o {
			t.Errorf("%q is %v, and that is %v, %v", s, o, again, err)
		}
	})
}

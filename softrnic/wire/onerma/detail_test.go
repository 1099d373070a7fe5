package onerma

import (
	"errors"
	"testing"
)

// The text of a message has its name and each field, and a number for what has no name.
func TestTexts(t *testing.T) {
	f, _ := sample(Data, Write, 128)
	f.At = 64
	const header = "WRITE data slot=258/50595078 region=117967114 offset=796025588171149586 length=1000 pid=320083222 class=1 counter=0x1718191a1b1c1d1e at=64 ticket=0x1f202122"
	if got := f.Header.String(); got != header {
		t.Errorf("%s\nwant %s", got, header)
	}
	f.IPv4.Src, f.IPv4.Dst = [4]byte{1, 2, 3, 4}, [4]byte{5, 6, 7, 8}
	if got, want := f.String(), "1.2.3.4 > 5.6.7.8 ONERMA "+header; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	h := Header{Kind: Request, Op: Read, Length: 1}
	if got, want := h.String(), "READ request slot=0/0 region=0 offset=0 length=1 pid=0 class=0 counter=0x0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for k, want := range map[Kind]string{0: "kind 0", Request: "request", Pull: "pull", Data: "data", Done: "done", Nack: "nack", AuthFail: "authfail", 7: "kind 7"} {
		if k.String() != want {
			t.Errorf("%v, want %s", k, want)
		}
	}
	for o, want := range map[Op]string{0: "operation 0", Read: "READ", Write: "WRITE", Rekey: "REKEY", 4: "operation 4"} {
		if o.String() != want {
			t.Errorf("%v, want %s", o, want)
		}
	}
	short, old := new(Header).Parse(make([]byte, 59)), new(Header).Parse(make([]byte, 60))
	if short.Error() != "ONERMA message: wrong bytes: 59" || old.Error() != "ONERMA message: wrong version: 0" {
		t.Errorf("%v, %v", short, old)
	}
}

// The largest operation, and data up to its end, are legal; the frame's protocol fields are those of
// a message, whatever they were.
func TestLargestOperation(t *testing.T) {
	f, _ := sample(Data, Write, 64)
	f.Length, f.At = MaxOp, MaxOp-64
	f.Eth.Type, f.IPv4.Protocol, f.UDP.DstPort = 1, 2, 3
	f.Eth.Tagged = true
	b := append(f.AppendOpen(nil, 64), make([]byte, 64+TagLen)...)
	var got Frame
	if err := ParseFrame(b, &got); err != nil || got.Header != f.Header || len(b) != f.Len(64) {
		t.Errorf("%v: %v", &got, err)
	}
	f.At = 0
	if b := append(f.AppendOpen(nil, MaxOp), make([]byte, MaxOp+TagLen)...); ParseFrame(b, &got) != nil || len(b) != MaxFrame {
		t.Errorf("%d bytes, at most %d: %v", len(b), MaxFrame, ParseFrame(b, &got))
	}
	f, _ = sample(Data, Write, 40)
	f.Length, f.At = 1000, 960
	if b := append(f.AppendOpen(nil, 40), make([]byte, 40+TagLen)...); ParseFrame(b, &got) != nil {
		t.Error("the rest of an operation is refused")
	}
}

// Frames of other protocols, and later fragments, are no messages.
func TestFramesOfOtherProtocols(t *testing.T) {
	_, good := sample(Request, Read, 0)
	for what, change := range map[string]func(b []byte){
		"IPv6":                 func(b []byte) { b[12], b[13] = 0x86, 0xdd },
		"TCP":                  func(b []byte) { b[14+9] = 6 },
		"the last fragment":    func(b []byte) { b[14+6], b[14+7] = 0, 1 },
		"a far fragment":       func(b []byte) { b[14+6] = 0x1f },
		"another port":         func(b []byte) { b[14+20+2] ^= 1 },
		"the source port only": func(b []byte) { b[14+20+3]-- },
	} {
		b := append([]byte(nil), good...)
		change(b)
		if err := ParseFrame(b, new(Frame)); !errors.Is(err, ErrNot) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

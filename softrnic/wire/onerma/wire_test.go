package onerma

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// sample returns a frame with a value in every field, and its bytes; the body is n bytes.
func sample(k Kind, o Op, n int) (*Frame, []byte) {
	f := &Frame{
		Eth:  wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, 2}, Src: wire.MAC{2, 0, 0, 0, 0, 1}, Type: wire.EtherTypeIPv4},
		IPv4: wire.IPv4{DF: true, TTL: 64, Protocol: wire.ProtocolUDP, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		UDP:  wire.UDP{SrcPort: 4792, DstPort: UDPPort},
		Header: Header{
			Kind: k, Op: o, Class: 1, Slot: 0x102, Generation: 0x3040506, Region: 0x708090a, Offset: 0x0b0c0d0e0f101112,
			Length: 1000, PID: 0x13141516, Counter: 0x1718191a1b1c1d1e, Ticket: 0x1f202122,
		},
	}
	if o == Rekey {
		f.Length = KeyLen
	}
	b := f.AppendOpen(nil, n)
	return f, append(b, make([]byte, n+TagLen)...)
}

// bodyOf returns a legal length of a message's body.
func bodyOf(k Kind, o Op) int {
	switch {
	case k == Data && o == Rekey:
		return KeyLen
	case k == Data:
		return 128
	case k == Pull:
		return PullLen
	}
	return 0
}

func legal(k Kind, o Op) bool { return o != Read || k != Pull && k != Done }

func TestHeaderBytes(t *testing.T) {
	h := Header{
		Kind: Data, Op: Write, Class: 1, Slot: 0x102, At: 0x40, Generation: 0x3040506, Region: 0x708090a,
		Offset: 0x0b0c0d0e0f101112, Length: 0x80, PID: 0x13141516, Counter: 0x1718191a1b1c1d1e, Ticket: 0x1f202122,
	}
	want := "01030201" + "01020040" + "03040506" + "0708090a" + "0b0c0d0e0f101112" + "00000080" + "13141516" + "1718191a1b1c1d1e" + "1f202122"
	if got := hex.EncodeToString(h.AppendTo(nil)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestFramesOfEveryKind(t *testing.T) {
	for k := Request; k <= AuthFail; k++ {
		for o := Read; o <= Rekey; o++ {
			want, b := sample(k, o, bodyOf(k, o))
			var got Frame
			err := ParseFrame(b, &got)
			if legal(k, o) != (err == nil) {
				t.Errorf("%v: %v", want, err)
			}
			if err != nil {
				continue
			}
			if len(b) != want.Len(bodyOf(k, o)) || len(got.Sealed) != bodyOf(k, o)+TagLen {
				t.Errorf("%v: %d bytes, %d sealed", want, len(b), len(got.Sealed))
			}
			if !bytes.Equal(got.Clear, want.Header.AppendTo(nil)) {
				t.Errorf("%v: header %x", want, got.Clear)
			}
			if d := cmp.Diff(want.Header, got.Header); d != "" {
				t.Errorf("%v: -want +got\n%s", want, d)
			}
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		kind   Kind
		op     Op
		body   int
		change func(*Header)
	}{
		"kind 0":                      {0, Read, 0, nil},
		"kind 7":                      {7, Read, 0, nil},
		"operation 0":                 {Request, 0, 0, nil},
		"operation 4":                 {Request, 4, 0, nil},
		"READ pull":                   {Pull, Read, PullLen, nil},
		"READ done":                   {Done, Read, 0, nil},
		"class 2":                     {Request, Read, 0, func(h *Header) { h.Class = 2 }},
		"length 0":                    {Request, Read, 0, func(h *Header) { h.Length = 0 }},
		"length 4097":                 {Request, Write, 0, func(h *Header) { h.Length = MaxOp + 1 }},
		"REKEY of 15 bytes":           {Request, Rekey, 0, func(h *Header) { h.Length = 15 }},
		"request with a place":        {Request, Read, 0, func(h *Header) { h.At = 64 }},
		"request with a body":         {Request, Read, 1, nil},
		"pull without time":           {Pull, Write, 3, nil},
		"data without body":           {Data, Read, 0, nil},
		"data at no unit":             {Data, Read, 64, func(h *Header) { h.At = 32 }},
		"data that ends at no unit":   {Data, Read, 63, nil},
		"data beyond the operation":   {Data, Read, 1024, nil},
		"data behind the operation":   {Data, Read, 64, func(h *Header) { h.At = 1024 }},
		"AUTHFAIL with a body":        {AuthFail, Write, 16, nil},
		"data of a key of more bytes": {Data, Rekey, 17, nil},
	} {
		f, _ := sample(c.kind, c.op, c.body)
		if c.change != nil {
			c.change(&f.Header)
		}
		b := append(f.AppendOpen(nil, c.body), make([]byte, c.body+TagLen)...)
		var got Frame
		var e *FormatError
		if err := ParseFrame(b, &got); !errors.As(err, &e) || e.Error() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, b := sample(Request, Read, 0)
	var f Frame
	for name, c := range map[string][]byte{
		"version": append(append(bytes.Clone(b[:42]), 2), b[43:]...),
		"cut":     b[:len(b)-1],
	} {
		if err := ParseFrame(c, &f); err == nil || errors.Is(err, ErrNot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b[14+20+3]++ // the port
	if err := ParseFrame(b, &f); !errors.Is(err, ErrNot) {
		t.Errorf("another port: %v", err)
	}
	for n := range b {
		if err := ParseFrame(b[:n], &f); err == nil {
			t.Errorf("%d bytes parse", n)
		}
	}
}

// FuzzParseFrame: no bytes make the parser panic, and what parses is encoded as the same message.
func FuzzParseFrame(f *testing.F) {
	for k := Request; k <= AuthFail; k++ {
		for o := Read; o <= Rekey; o++ {
			_, b := sample(k, o, bodyOf(k, o))
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, second Frame
		if ParseFrame(b, &first) != nil {
			return
		}
		_ = first.String()
		n := len(first.Sealed) - TagLen
		again := append(first.AppendOpen(nil, n), first.Sealed...)
		if err := ParseFrame(again, &second); err != nil {
			t.Fatalf("%v\nof %x\nwritten as %x", err, b, again)
		}
		if d := cmp.Diff(&first, &second); d != "" || len(again) != first.Len(n) {
			t.Fatalf("-first +second\n%s", d)
		}
	})
}

// FuzzHeader builds messages from fields, so that most inputs parse: what is legal is accepted with
// the same fields, and what is not is refused.
func FuzzHeader(f *testing.F) {
	f.Add(uint8(3), uint8(2), uint8(1), uint16(5), uint32(6), uint16(64), uint32(7), uint64(8), uint32(1000), uint32(9), uint64(10), uint32(11), uint16(128))
	f.Fuzz(func(t *testing.T, kind, op, class uint8, slot uint16, generation uint32, at uint16, region uint32, offset uint64, length, pid uint32, counter uint64, ticket uint32, body uint16) {
		want := Header{
			Kind: Kind(kind % 8), Op: Op(op % 5), Class: class % 3, Slot: slot, Generation: generation, At: at % (MaxOp + 64), Region: region,
			Offset: offset, Length: length % (MaxOp + 2), PID: pid, Counter: counter, Ticket: ticket,
		}
		n := int(body) % (MaxOp + 65)
		b := append(want.AppendTo(nil), make([]byte, n+TagLen)...)
		var got Header
		err := got.Parse(b)
		if err == nil && got != want {
			t.Fatalf("%v, want %v", &got, &want)
		}
		if err == nil && want.Kind == Data && int(want.At)+n > int(want.Length) {
			t.Fatalf("%v with %d bytes is accepted", &want, n)
		}
	})
}

package rdmacm

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func sampleMessages() []message {
	e := Endpoint{
		QPN: 0x123456, PSN: 0xfffffe, GID: verbs.GIDOf(netip.MustParseAddr("10.77.0.1")), MTU: verbs.MTU4096, RdAtomic: 16,
	}
	return []message{
		{kind: kindRequest, endpoint: e, text: "memory"},
		{kind: kindRequest, endpoint: e, text: strings.Repeat("s", MaxService), private: bytes.Repeat([]byte{7}, MaxPrivate)},
		{kind: kindReply, endpoint: e, private: []byte("rkey and address")},
		{kind: kindReject, text: "no service"},
		{kind: kindReject, private: []byte("an answer")},
		{kind: kindReject, text: "fenced", private: bytes.Repeat([]byte{7}, MaxAnswer)},
		{kind: kindReady},
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range sampleMessages() {
		got, err := readMessage(bytes.NewReader(m.appendTo(nil)))
		if err != nil {
			t.Errorf("kind %d: %v", m.kind, err)
		}
		if len(m.private) == 0 {
			m.private = got.private // nil or empty, both mean none
		}
		if d := cmp.Diff(m, got, cmp.AllowUnexported(message{})); d != "" {
			t.Errorf("kind %d (-sent +got):\n%s", m.kind, d)
		}
	}
}

func TestLongReasonIsCut(t *testing.T) {
	m := message{kind: kindReject, text: strings.Repeat("x", 1000)}
	got, err := readMessage(bytes.NewReader(m.appendTo(nil)))
	if err != nil || len(got.text) != maxText {
		t.Errorf("got %d bytes, %v; want %d", len(got.text), err, maxText)
	}
}

// Each damaged request is refused with ErrProtocol, and not taken for another one.
func TestMalformedMessages(t *testing.T) {
	whole := sampleMessages()[2].appendTo(nil)
	for name, mutilate := range map[string]func(b []byte){
		"magic":      func(b []byte) { b[0] ^= 1 },
		"version":    func(b []byte) { b[4] = 9 },
		"kind":       func(b []byte) { b[5] = 77 },
		"length":     func(b []byte) { b[6] = 0xff },
		"QPN 0":      func(b []byte) { copy(b[8:], []byte{0, 0, 0, 0}) },
		"QPN high":   func(b []byte) { b[8] = 1 },
		"multicast":  func(b []byte) { copy(b[8:], []byte{0, 0xff, 0xff, 0xff}) },
		"PSN high":   func(b []byte) { b[12] = 1 },
		"MTU":        func(b []byte) { b[32] = 3 },
		"depth 0":    func(b []byte) { b[34], b[35] = 0, 0 },
		"depth high": func(b []byte) { b[34] = 0xff },
		"text":       func(b []byte) { b[36] = 255 },
		"private":    func(b []byte) { b[37] = 1 },
		"trailing":   func(b []byte) { b[38]-- },
	} {
		b := bytes.Clone(whole)
		mutilate(b)
		if _, err := readMessage(bytes.NewReader(b)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, want ErrProtocol", name, err)
		}
	}
	empty := append(sampleMessages()[3].appendTo(nil), 0, 0)
	empty[7] += 2
	if _, err := readMessage(bytes.NewReader(empty)); !errors.Is(err, ErrProtocol) {
		t.Errorf("a reject with 0 bytes of private data: %v, want ErrProtocol", err)
	}
	for n := range whole {
		if _, err := readMessage(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("the first %d of %d bytes were taken for a message", n, len(whole))
		}
	}
}

// A message that is parsed is encoded to the same bytes.
func FuzzMessage(f *testing.F) {
	for _, m := range sampleMessages() {
		f.Add(m.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err != nil {
			return
		}
		if got := m.appendTo(nil); !bytes.HasPrefix(b, got) {
			t.Errorf("% x\nparsed to %+v\nwritten  % x", b, m, got)
		}
	})
}

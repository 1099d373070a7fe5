package mad

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var attrs = []Attr{AttrREQ, AttrMRA, AttrREJ, AttrREP, AttrRTU, AttrDREQ, AttrDREP, AttrSIDRReq, AttrSIDRRep}

// A body of any bits that was decoded and encoded once is the same after a second time: no field is
// cut, moved or lost.
func TestFieldsStay(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, a := range attrs {
		for range 200 {
			b := make([]byte, bodyLen)
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			checkFixedPoint(t, a, b)
		}
	}
}

// Every bit of a body belongs to a field or is reserved; the number of bits that are decoded is the
// sum of the fields' widths.
func TestEveryBitHasItsField(t *testing.T) {
	reserved := map[Attr]int{
		AttrREQ: 64 + 2*(6+3+3), AttrMRA: 6 + 3, AttrREJ: 6 + 1, AttrREP: 3*8 + 4, AttrDREQ: 8, AttrSIDRReq: 16, AttrSIDRRep: 16 + 8,
	}
	for _, a := range attrs {
		lost := 0
		for i := range bodyLen * 8 {
			b := make([]byte, bodyLen)
			b[i/8] = 0x80 >> (i % 8)
			m := newMessage[a]()
			if err := m.Parse(b); err != nil {
				t.Fatal(err)
			}
			if out := m.AppendTo(nil); string(out) != string(b) {
				lost++
				if strings.Trim(string(out), "\x00") != "" {
					t.Errorf("%v: bit %d comes out elsewhere", a, i)
				}
			}
		}
		if lost != reserved[a] {
			t.Errorf("%v: %d bits are dropped, want %d reserved ones", a, lost, reserved[a])
		}
	}
}

func checkFixedPoint(t testing.TB, a Attr, b []byte) {
	t.Helper()
	first, second := newMessage[a](), newMessage[a]()
	if err := first.Parse(b); err != nil {
		t.Fatal(err)
	}
	out := first.AppendTo(nil)
	if len(out) != bodyLen {
		t.Fatalf("%v: %d bytes", a, len(out))
	}
	if err := second.Parse(out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Fatalf("%v: -first +second\n%s", a, d)
	}
	if again := second.AppendTo(nil); string(again) != string(out) {
		t.Fatalf("%v: written as %x and %x", a, out, again)
	}
}

func TestParseRefuses(t *testing.T) {
	good := Append(nil, 7, &RTU{LocalID: 1})
	var h Header
	var fe *wire.FormatError
	for n := range Size {
		if _, err := Parse(good[:n], &h); !errors.As(err, &fe) || !errors.Is(err, wire.ErrTruncated) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for _, a := range attrs {
		if err := newMessage[a]().Parse(make([]byte, bodyLen-1)); !errors.Is(err, wire.ErrTruncated) {
			t.Errorf("%v: %v", a, err)
		}
	}
	for i, v := range map[int]byte{0: 2, 1: 3, 2: 1, 3: 0x81, 17: 0x0f} {
		b := append([]byte(nil), good...)
		b[i] = v
		if _, err := Parse(b, &h); !errors.Is(err, ErrNotCM) {
			t.Errorf("byte %d = %d: %v", i, v, err)
		}
	}
	if newMessage[0x19] != nil { // LAP
		t.Error("a message without a codec")
	}
}

// The header of RDMA-CM, over both families (A11.6).
func TestIPData(t *testing.T) {
	for _, pair := range [][2]string{{"10.1.2.3", "10.1.2.4"}, {"fd77::1", "fe80::1"}} {
		want := IPData{SrcPort: 0x1234, Src: netip.MustParseAddr(pair[0]), Dst: netip.MustParseAddr(pair[1])}
		b := want.AppendTo(nil)
		var got IPData
		if err := got.Parse(b); err != nil || got != want || len(b) != IPDataLen {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		b[1] = 0x50
		if err := got.Parse(b); !errors.Is(err, wire.ErrVersion) {
			t.Errorf("version 5: %v", err)
		}
		if err := got.Parse(b[:IPDataLen-1]); !errors.Is(err, wire.ErrTruncated) {
			t.Errorf("short: %v", err)
		}
	}
}

// Service IDs of ports, and others (A11.2, A3.2.3).
func TestServiceIDs(t *testing.T) {
	for text, s := range map[string]ServiceID{
		"tcp:7174": PortService(SpaceTCP, 7174), "udp:1": PortService(SpaceUDP, 1), "0x0200000000001c06": 0x02_00_0000_0000_1c06,
		"0x0000000001070001": PortService(7, 1),
	} {
		if s.String() != text {
			t.Errorf("%v, want %s", s, text)
		}
	}
	if PortService(SpaceTCP, 7174) != 0x0000000001061c06 {
		t.Error("not as RDMA-CM writes it")
	}
	for i := range 1 << 16 {
		space, port := ServiceID(i%256), uint16(i*7)
		if s, p, ok := PortService(space, port).Port(); !ok || s != space || p != port {
			t.Fatalf("%v %v %v", s, p, ok)
		}
	}
}

// The printed values, and the durations that the codes stand for (IBTA 12.7.34, 12.11.2.1).
func TestNamesAndTimes(t *testing.T) {
	for text, s := range map[string]interface{ String() string }{
		"REQ": AttrREQ, "SIDR_REP": AttrSIDRRep, "attribute 0x0019": Attr(0x19), "stale connection": ReasonStale,
		"consumer reject": ReasonConsumer, "reason 99": Reason(99), "rejected": SIDRRejected, "status 9": SIDRStatus(9),
	} {
		if s.String() != text {
			t.Errorf("%q, want %q", s.String(), text)
		}
	}
	if Time(0) != 4096*time.Nanosecond || Time(14) != 67108864*time.Nanosecond || Time(31) < 2*time.Hour {
		t.Error("times")
	}
}

// FuzzParse: no bytes make the codec panic, and a datagram that parses is encoded as one that
// parses to the same fields.
func FuzzParse(f *testing.F) {
	captured(f, func(_ string, frame *wire.Frame) { f.Add(frame.Payload) })
	for _, a := range attrs {
		f.Add(Append(nil, 1, newMessage[a]()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		m, err := Parse(b, &h)
		if err != nil {
			return
		}
		checkFixedPoint(t, h.Attr, b[HeaderLen:])
		var again Header
		if _, err := Parse(Append(nil, h.TID, m), &again); err != nil || again.TID != h.TID || again.Attr != h.Attr {
			t.Fatalf("%+v, %v", again, err)
		}
		if q, ok := m.(*REQ); ok {
			var d, e IPData
			if d.Parse(q.Private[:]) == nil && (e.Parse(d.AppendTo(nil)) != nil || d != e) {
				t.Fatalf("RDMA-CM header %+v and %+v", d, e)
			}
		}
	})
}

// Every field of the common header has its own bytes (IBTA 13.4.2).
func TestHeaderBytes(t *testing.T) {
	b := make([]byte, HeaderLen)
	for i := range b {
		b[i] = byte(i + 1)
	}
	b[18], b[19] = 0, 0 // reserved
	var h Header
	if err := h.Parse(b); err != nil {
		t.Fatal(err)
	}
	want := Header{
		BaseVersion: 1, Class: 2, ClassVersion: 3, Method: 4, Status: 0x0506, ClassSpecific: 0x0708, TID: 0x090a0b0c0d0e0f10,
		Attr: 0x1112, Modifier: 0x15161718,
	}
	if h != want || string(h.AppendTo(nil)) != string(b) || len(b) != HeaderLen {
		t.Errorf("%+v, want %+v", h, want)
	}
	if err := h.Parse(b[:HeaderLen-1]); err == nil {
		t.Error("a byte is missing")
	}
	var cm Header
	if err := cm.Parse(Append(nil, 7, &RTU{})); err != nil || !cm.IsCM() {
		t.Error("its own header is of another kind")
	}
	for i := range 4 {
		b := cm.AppendTo(nil)
		b[i]++
		if err := h.Parse(b); err != nil || h.IsCM() {
			t.Errorf("byte %d does not matter", i)
		}
	}
}

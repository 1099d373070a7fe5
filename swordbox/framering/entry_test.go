package framering

import (
	"reflect"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// A header is read as it was written.
func TestHeader(t *testing.T) {
	h := header{tag: 1, place: 2, number: 3, length: 5, part: 1, last: 4, meta: packetio.Frame{
		SegSize: 1448, CsumPartial: true, CsumStart: 34, CsumOffset: 16, Offload: packetio.Offload{Type: 1, HdrLen: 66, Size: 1448},
	}}
	b := append(h.appendTo(nil), "hello and more"...)
	if len(b) != HeaderLen+14 {
		t.Errorf("%d bytes", len(b))
	}
	var got header
	body, ok := got.parse(b)
	if !ok || string(body) != "hello" || !reflect.DeepEqual(got, h) {
		t.Errorf("%v %q %+v", ok, body, got)
	}
}

// No bytes in a server's memory make the header point outside of the entry.
func FuzzHeader(f *testing.F) {
	h := header{tag: 1, length: 8, last: 1}
	f.Add(append(h.appendTo(nil), make([]byte, 8)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h header
		if body, ok := h.parse(b); ok && (len(body) == 0 || len(body)+HeaderLen > len(b) || h.part > h.last) {
			t.Errorf("%d bytes of %d, part %d of %d", len(body), len(b), h.part, h.last)
		}
	})
}

// A frame comes back if its parts come back in order, and another frame takes the place of one with
// a missing part.
func TestPartsOfAFrame(t *testing.T) {
	var p partial
	take := func(number uint32, part, last uint8, body string) string {
		if p.take(&header{number: number, part: part, last: last}, []byte(body)) {
			return string(p.data)
		}
		return ""
	}
	for _, s := range []struct {
		number     uint32
		part, last uint8
		body, want string
	}{
		{1, 1, 2, "b", ""},
		{2, 0, 0, "whole", "whole"},
		{3, 0, 2, "a", ""},
		{3, 1, 2, "b", ""},
		{3, 2, 2, "c", "abc"},
		{4, 0, 2, "a", ""},
		{4, 2, 2, "c", ""},
		{4, 1, 2, "b", ""},
		{5, 0, 1, "a", ""},
		{6, 1, 1, "b", ""},
		{7, 0, 1, "x", ""},
		{8, 0, 1, "y", ""},
		{8, 1, 1, "z", "yz"},
	} {
		if got := take(s.number, s.part, s.last, s.body); got != s.want {
			t.Errorf("part %d of frame %d: %q, want %q", s.part, s.number, got, s.want)
		}
	}
}

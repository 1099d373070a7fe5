package verbs

import (
	"errors"
	"net/netip"
	"testing"
)

// The GRH area names the sender, over both families (A17.4.5.1).
func TestParseGRH(t *testing.T) {
	src, dst := netip.MustParseAddr("fd77::1"), netip.MustParseAddr("fd77::2")
	b := make([]byte, GRHLen)
	b[0], b[1], b[2], b[3], b[7] = 0x66, 0xab, 0xcd, 0xef, 63
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	if g, err := ParseGRH(b); err != nil || g != (GRH{GIDOf(src), GIDOf(dst), 0x6a, 63, 0xbcdef}) {
		t.Errorf("IPv6: %+v, %v", g, err)
	}
	src, dst = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	clear(b)
	b[20], b[21], b[28] = 0x45, 0x6a, 7
	copy(b[32:], src.AsSlice())
	copy(b[36:], dst.AsSlice())
	if g, err := ParseGRH(b); err != nil || g != (GRH{GIDOf(src), GIDOf(dst), 0x6a, 7, 0}) {
		t.Errorf("IPv4: %+v, %v", g, err)
	}
	for _, bad := range [][]byte{nil, b[:39], make([]byte, GRHLen)} {
		if _, err := ParseGRH(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

func FuzzParseGRH(f *testing.F) {
	f.Add(make([]byte, GRHLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := ParseGRH(b); err == nil && g == (GRH{}) && b[0]>>4 != 6 {
			t.Error("an empty GRH without an error")
		}
	})
}

package superblock

import (
	"encoding/binary"
	"testing"
)

// Each store's memory is recognized by the others, in each version, and not by itself.
func TestForeign(t *testing.T) {
	for _, s := range stores {
		for _, version := range []Word{0, s.version} {
			b := binary.LittleEndian.AppendUint64(nil, s.word^version)
			for _, own := range []Word{Clover, Sherman, FUSEE} {
				want := s.holds
				if own == s.word {
					want = ""
				}
				if got := Foreign(b, own); got != want {
					t.Errorf("Foreign(%q, %#x) = %q, want %q", b, own, got, want)
				}
			}
			if got := Foreign(b[:7], 0); got != "" {
				t.Errorf("7 bytes are %q", got)
			}
		}
		b := binary.LittleEndian.AppendUint64(nil, s.word^1<<16)
		if got := Foreign(b, 0); got != "" {
			t.Errorf("%q is %q", b, got)
		}
	}
	if got := Foreign(make([]byte, 64), 0); got != "" {
		t.Errorf("zeros are %q", got)
	}
}

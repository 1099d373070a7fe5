package cli

import "testing"

func TestParseQPN(t *testing.T) {
	for s, want := range map[string]uint32{"2": 2, "0x5a31c2": 0x5a31c2, "0xffffff": 0xffffff} {
		if n, err := parseQPN(s); err != nil || uint32(n) != want {
			t.Errorf("%s: %#x, %v", s, uint32(n), err)
		}
	}
	for _, s := range []string{"", "0", "1", "-2", "0x1000000", "x", "2.5"} {
		if n, err := parseQPN(s); err == nil {
			t.Errorf("%q is %#x", s, uint32(n))
		}
	}
}

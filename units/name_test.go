package units

import (
	"strings"
	"testing"
)

func TestIsName(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "crc32": true, "my-rule-1": true, strings.Repeat("x", MaxName): true,
		"": false, "A": false, "a b": false, "a_b": false, "ä": false, "a\x00": false, strings.Repeat("x", MaxName+1): false,
	} {
		if IsName(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

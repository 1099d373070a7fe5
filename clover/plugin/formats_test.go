package plugin

import "testing"

// The old names of the formats are accepted.
func TestNamesOfFormats(t *testing.T) {
	for old, now := range map[string]string{"": "hardened", "sound": "hardened", "vanilla": "published"} {
		a, ok := formats[old]
		b, there := formats[now]
		if !ok || !there || a != b {
			t.Errorf("%q and %q: %v %v", old, now, a, b)
		}
	}
	if formats["hardened"] == formats["published"] || formats["keyed"] == formats["published"] {
		t.Error("two formats are one")
	}
}

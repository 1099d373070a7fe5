package layering

import (
	"strings"
	"testing"
)

// The tables of gopacket's layers take 6 MB and milliseconds of every process that links them, and a
// rack has one or two processes for each host: only packages for programs of others may import them.
func TestBinaryStartsWithoutTables(t *testing.T) {
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") || s.pkg == "softrnic/wire/layers" || s.pkg == "softrnic/wire/onerma/layers" {
			continue
		}
		text := string(read(t, s.path))
		for _, p := range []string{"google/gopacket/layers", "rdmalab/softrnic/wire/layers", "rdmalab/softrnic/wire/onerma/layers"} {
			if strings.Contains(text, p+`"`) {
				t.Errorf("%s imports %s; use softrnic/wire/dissect", s.path, p)
			}
		}
	}
}
